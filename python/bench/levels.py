"""The question of trees where there is no recursion: from every call a step up, then the next, until none is left.

The answer as of `sql.trees`: method_id, below (sum of descendants), above (most ancestors).
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pyarrow as pa

from scotfree.study.store import Store


def polars(store: Store) -> pa.Table:
    """By frames of Polars."""
    files = [str(file) for file in store.files("span")]
    calls = pl.scan_parquet(files, hive_partitioning=False).select(
        "trace_id", "span_id", "method_id", upper_id="parent_id"
    )
    calls = calls.collect().lazy()
    parents = calls.select("trace_id", upper_id="span_id", next_id="upper_id")
    level = calls.select("trace_id", "span_id", "upper_id").collect()
    steps: list[pl.DataFrame] = []
    while level.height:
        steps.append(level.with_columns(above=pl.lit(len(steps), pl.Int64)))
        further = level.lazy().join(parents, on=["trace_id", "upper_id"])
        level = further.select("trace_id", "span_id", upper_id="next_id").collect()
    up = pl.concat(steps).lazy()
    above = up.group_by("trace_id", "span_id").agg(pl.col("above").max())
    named = up.filter(pl.col("upper_id").is_not_null())
    below = named.group_by("trace_id", span_id="upper_id").agg(below=pl.len().cast(pl.Int64))
    key = ["trace_id", "span_id"]
    placed = calls.join(above, on=key).join(below, on=key, how="left")
    return placed.group_by("method_id").agg(pl.col("below").sum(), pl.col("above").max()).collect().to_arrow()


def spark(session: Any) -> pa.Table:
    """By frames of Spark, over its view `span`."""
    from pyspark.sql import functions as f  # noqa: PLC0415, only who asks for Spark needs it

    calls = session.table("span").selectExpr("trace_id", "span_id", "method_id", "parent_id AS upper_id")
    parents = calls.selectExpr("trace_id", "span_id AS upper_id", "upper_id AS next_id").persist()
    level, up, steps = calls.select("trace_id", "span_id", "upper_id"), None, 0
    while level.take(1):
        stepped = level.withColumn("above", f.lit(steps))
        up, steps = stepped if up is None else up.union(stepped), steps + 1
        further = level.join(parents, ["trace_id", "upper_id"])
        # Else every level would be joined anew for each that follows.
        level = further.selectExpr("trace_id", "span_id", "next_id AS upper_id").localCheckpoint()
    assert up is not None, "a store without calls"
    above = up.groupBy("trace_id", "span_id").agg(f.max("above").alias("above"))
    below = up.groupBy("trace_id", f.col("upper_id").alias("span_id")).agg(f.count(f.lit(1)).alias("below"))
    placed = calls.join(above, ["trace_id", "span_id"]).join(below, ["trace_id", "span_id"], "left")
    sums = f.coalesce(f.sum("below"), f.lit(0)).alias("below")
    return placed.groupBy("method_id").agg(sums, f.max("above").alias("above")).toArrow()
