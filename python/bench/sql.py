"""The study's questions in DuckDB's SQL as one would write it by hand: what the kernels are compared with."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.store import Store

Connection = Any
_PS = ", ".join(f"{p:.2f}" for p in schema.QUANTILES)


def connect(store: Store) -> Connection:
    """A connection with a view of the calls."""
    connection = duckdb.connect(config={"memory_limit": "3GB", "threads": 2, "preserve_insertion_order": False})
    connection.execute(f"CREATE VIEW span AS SELECT * FROM '{store.folder}/span/*/*.parquet'")
    return connection


def quantiles(connection: Connection, value: str = "total_ns") -> pa.Table:
    """method_id, picked (a list of the eight quantiles), of methods with enough samples."""
    return connection.sql(
        f"""SELECT method_id, quantile_disc({value}, [{_PS}]) AS picked FROM span
        WHERE status = 'OK' GROUP BY method_id HAVING count({value}) >= {schema.SAMPLES_MIN} ORDER BY method_id"""
    ).to_arrow_table()


def bounds(connection: Connection) -> pa.Table:
    """method_id, bound (P95 of the total), and of each stage its median."""
    medians = ", ".join(f"quantile_disc({name}, 0.5) AS m_{name}" for name in schema.STAGE_COLUMNS)
    return connection.sql(
        f"""SELECT method_id, quantile_disc(total_ns, 0.95) AS bound, {medians} FROM span
        WHERE status = 'OK' GROUP BY method_id HAVING count(*) >= {schema.SAMPLES_MIN}"""
    ).to_arrow_table()


def what_if(connection: Connection, limits: pa.Table) -> pa.Table:
    """method_id, tail, and per stage how many leave it; `limits` as by `bounds`."""
    connection.register("limits", limits)
    leaves = ", ".join(
        f"count(*) FILTER (total_ns - {name} + m_{name} < bound) AS {name}" for name in schema.STAGE_COLUMNS
    )
    return connection.sql(
        f"""SELECT method_id, count(*) AS tail, {leaves} FROM span JOIN limits USING (method_id)
        WHERE status = 'OK' AND total_ns > bound GROUP BY method_id ORDER BY method_id"""
    ).to_arrow_table()


def trees(connection: Connection) -> pa.Table:
    """method_id, below (sum of descendants), above (most ancestors); by walking up from every call."""
    return connection.sql(
        """WITH RECURSIVE up(trace_id, span_id, upper_id, above) AS (
            SELECT trace_id, span_id, parent_id, 0 FROM span
            UNION ALL
            SELECT up.trace_id, up.span_id, parent.parent_id, up.above + 1
            FROM up JOIN span AS parent ON parent.trace_id = up.trace_id AND parent.span_id = up.upper_id),
        above AS (SELECT trace_id, span_id, max(above) AS above FROM up GROUP BY ALL),
        below AS (SELECT trace_id, upper_id AS span_id, count(*) AS below FROM up
            WHERE upper_id IS NOT NULL GROUP BY ALL)
        SELECT method_id, coalesce(sum(below), 0)::BIGINT AS below, max(above) AS above
        FROM span JOIN above USING (trace_id, span_id) LEFT JOIN below USING (trace_id, span_id)
        GROUP BY method_id ORDER BY method_id"""
    ).to_arrow_table()
