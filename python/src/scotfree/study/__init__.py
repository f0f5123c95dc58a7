"""The study: the characterization of a cloud's remote procedure calls, on a user's own data.

Layers, dependencies in one direction: `ingest` (bytes to rows) -> `store` (rows to Parquet) -> `analysis`
(Parquet to aggregates) -> `figures` (aggregates to small tables) -> `report` (small tables to a page).
"""
