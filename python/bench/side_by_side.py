"""The same questions asked of plain DuckDB SQL, Polars, PySpark and the study: equal answers, and what each took.

`python -m bench.side_by_side [CALLS] [METHODS]`, in python/. Spark runs in this process (`local[2]`), and its time
is that of the clock. Polars and Spark have no recursion to ask for trees with: there a loop joins level by level.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from bench import data, levels, ours, sql
from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.engine.spark_session import session
from scotfree.study.store import Store

Answer = dict[int, list[float]]
Question = Callable[[], Answer]
TAX_RATIO = "(total_ns - server_app_ns) / nullif(total_ns, 0)"
_NAMES = [column(p) for p in schema.QUANTILES]


def main(calls: int = 1_000_000, methods: int = 1_000) -> int:
    """Asks all, prints a table, fails if an answer differs."""
    store = data.store(calls, methods)
    peers = {"study": of_study(store), "sql": of_sql(store), "polars": of_polars(store), "spark": of_spark(store)}
    for question in peers["study"]:
        expected: Answer | None = None
        for peer, questions in peers.items():
            if question not in questions:
                continue
            began = time.perf_counter()
            answer = questions[question]()
            print(f"{question:10} {peer:8} {time.perf_counter() - began:8.2f} s", flush=True)
            expected = expected or answer
            assert is_same(expected, answer), f"{peer} answers {question} otherwise"
    return 0


def is_same(left: Answer, right: Answer) -> bool:
    """Within 1e-12."""
    return left.keys() == right.keys() and all(
        np.allclose(values, right[method], rtol=1e-12, atol=0) for method, values in left.items()
    )


def of_study(store: Store) -> dict[str, Question]:
    """By `bench.ours`."""
    engine, limits = DuckEngine(store, threads=2), sql.bounds(sql.connect(store))
    return {
        "quantiles": lambda: _rows(ours.quantiles(engine), _NAMES),
        "tax": lambda: _rows(ours.quantiles(engine, "tax_ratio"), _NAMES),
        "what-if": lambda: _leaves(ours.what_if(engine, store.read("methods"), limits)),
        "trees": lambda: _rows(ours.trees(engine), ["below", "above"]),
    }


def of_sql(store: Store) -> dict[str, Question]:
    """By `bench.sql`."""
    connection = sql.connect(store)
    limits = sql.bounds(connection)
    return {
        "quantiles": lambda: _lists(sql.quantiles(connection)),
        "tax": lambda: _lists(sql.quantiles(connection, TAX_RATIO)),
        "what-if": lambda: _shares(sql.what_if(connection, limits)),
        "trees": lambda: _rows(sql.trees(connection), ["below", "above"]),
    }


def of_polars(store: Store) -> dict[str, Question]:
    """By lazy frames."""
    span = pl.scan_parquet([str(file) for file in store.files("span")], hive_partitioning=False)
    span = span.filter(pl.col("status") == schema.STATUS_OK)
    limits = pl.DataFrame(sql.bounds(sql.connect(store)))
    ratio = (pl.col("total_ns") - pl.col("server_app_ns")) / pl.col("total_ns")

    def quantiles(value: pl.Expr) -> Answer:
        asked = span.select("method_id", value=value).group_by("method_id")
        eight = [_ranked(p).alias(column(p)) for p in schema.QUANTILES]
        found = asked.agg(*eight, samples=pl.len()).filter(pl.col("samples") >= schema.SAMPLES_MIN)
        return _rows(found.collect().to_arrow(), _NAMES)

    def what_if() -> Answer:
        tail = span.join(limits.lazy(), on="method_id").filter(pl.col("total_ns") > pl.col("bound"))
        leaves = [
            ((pl.col("total_ns") - pl.col(name) + pl.col(f"m_{name}")) < pl.col("bound")).sum().alias(name)
            for name in schema.STAGE_COLUMNS
        ]
        return _shares(tail.group_by("method_id").agg(*leaves, tail=pl.len()).collect().to_arrow())

    return {
        "quantiles": lambda: quantiles(pl.col("total_ns")),
        "tax": lambda: quantiles(ratio),
        "what-if": what_if,
        "trees": lambda: _rows(levels.polars(store), ["below", "above"]),
    }


def _ranked(p: float) -> pl.Expr:
    """Nearest rank: the ceil(p n)-th smallest."""
    rank = (pl.len() * round(p * 100) + 99) // 100
    return pl.col("value").sort().get(rank.cast(pl.Int64) - 1)


def of_spark(store: Store) -> dict[str, Question]:
    """By Spark's SQL."""
    spark = session("local[2]", **{"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "4"})
    spark.read.parquet(*[str(file) for file in store.files("span")]).createOrReplaceTempView("span")
    limits = sql.bounds(sql.connect(store))
    spark.createDataFrame(limits).createOrReplaceTempView("limits")

    def quantiles(value: str) -> Answer:
        eight = ", ".join(
            f"percentile_disc({p:.2f}) WITHIN GROUP (ORDER BY {value}) AS {column(p)}" for p in schema.QUANTILES
        )
        query = f"""SELECT method_id, {eight} FROM span WHERE status = 'OK'
            GROUP BY method_id HAVING count({value}) >= {schema.SAMPLES_MIN}"""
        return _rows(spark.sql(query).toArrow(), _NAMES)

    def what_if() -> Answer:
        leaves = ", ".join(
            f"count_if(total_ns - {name} + m_{name} < bound) AS {name}" for name in schema.STAGE_COLUMNS
        )
        query = f"""SELECT method_id, count(*) AS tail, {leaves} FROM span JOIN limits USING (method_id)
            WHERE status = 'OK' AND total_ns > bound GROUP BY method_id"""
        return _shares(spark.sql(query).toArrow())

    return {
        "quantiles": lambda: quantiles("total_ns"),
        "tax": lambda: quantiles(TAX_RATIO),
        "what-if": what_if,
        "trees": lambda: _rows(levels.spark(spark), ["below", "above"]),
    }


def _rows(table: pa.Table, names: list[str]) -> Answer:
    columns = np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])
    return dict(zip(table["method_id"].to_pylist(), columns.tolist(), strict=True))


def _lists(table: pa.Table) -> Answer:
    return dict(zip(table["method_id"].to_pylist(), table["picked"].to_pylist(), strict=True))


def _shares(counts: pa.Table) -> Answer:
    tail = counts["tail"].to_numpy()
    shares = np.column_stack([counts[name].to_numpy() / tail for name in schema.STAGE_COLUMNS])
    return dict(zip(counts["method_id"].to_pylist(), shares.tolist(), strict=True))


def _leaves(shares: pa.Table) -> Answer:
    found: dict[int, Any] = {}
    for row in shares.select(["method_id", "leaves"]).to_pylist():
        if row["method_id"] is not None:
            found.setdefault(row["method_id"], []).append(row["leaves"])
    return found


if __name__ == "__main__":
    raise SystemExit(main(*map(int, sys.argv[1:])))
