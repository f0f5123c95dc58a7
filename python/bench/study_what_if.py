"""How many calls a second of processor time goes through the nine-stage what-if, in one pass over Parquet.

T and the medians are known before: the pass that fills the histograms leaves them. SQL is given the same.
"""

from __future__ import annotations

from typing import Any

from bench import data, ours, sql
from bench.measured import cpu_seconds
from scotfree.study import schema
from scotfree.study.engine.duck import DuckEngine


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """Arms: `study` (with intervals), `sql` (without), `sql-whole` (that and finding T and the medians)."""
    store = data.store(settings["calls"], settings["methods"])
    connection = sql.connect(store)
    limits, before = cpu_seconds(lambda: sql.bounds(connection))
    if arm == "study":
        engine, methods = DuckEngine(store, threads=2), store.read("methods")
        shares, seconds = cpu_seconds(lambda: ours.what_if(engine, methods, limits))
        assert ours.same_shares(shares, sql.what_if(connection, limits))
        cells = shares.num_rows // len(schema.STAGES) - 1
    else:
        found, seconds = cpu_seconds(lambda: sql.what_if(connection, limits))
        cells = found.num_rows
    seconds += before if arm == "sql-whole" else 0.0
    return {"mspans_per_cpu_s": store.manifest.spans / seconds / 1e6, "methods": cells}
