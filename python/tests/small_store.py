"""Small stores for tests: a call is a few columns, the rest is filled in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.store import Manifest, Store, partition_folder, write_manifest, write_table


def spans(**columns: Any) -> pa.Table:
    """Rows of `span`. Without anything said they are successful calls of one method, all measured.

    `stages` is an array of nine columns; the total is its sum if none is given.
    """
    stages = columns.pop("stages", None)
    if stages is not None:
        columns |= {name: stages[:, place] for place, name in enumerate(schema.STAGE_COLUMNS)}
        columns.setdefault("total_ns", stages.sum(axis=1))
    count = len(next(iter(columns.values())))
    defaults: dict[str, Any] = {
        "trace_id": [index.to_bytes(16, "big") for index in range(count)],
        "span_id": np.arange(count),
        "start_ns": np.zeros(count, np.int64),
        "service": ["Cart"] * count,
        "method": ["Get"] * count,
        "status": [schema.STATUS_OK] * count,
        "provenance": np.full(count, schema.ALL_MEASURED if stages is not None else 0),
    }
    columns = defaults | columns
    pairs = sorted(set(zip(columns["service"], columns["method"], strict=True)))
    columns["method_id"] = [pairs.index(pair) for pair in zip(columns["service"], columns["method"], strict=True)]
    return pa.table(
        {
            field.name: pa.array(columns[field.name], _plain(field)).cast(field.type)
            if field.name in columns
            else pa.nulls(count, field.type)
            for field in schema.SPAN
        }
    ).cast(schema.SPAN)


def _plain(field: pa.Field) -> pa.DataType:
    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type


def metrics(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of `metric`; labels that are not given are null."""
    columns = {
        field.name: pa.array([row.get(field.name) for row in rows], _plain(field)).cast(field.type)
        for field in schema.METRIC
    }
    return pa.table(columns).cast(schema.METRIC)


def study_of(
    folder: Path, span: pa.Table, metric: pa.Table | None = None, profile: pa.Table | None = None
) -> Study:
    """A study over these rows: two partitions, so that results of parts must add up."""
    halves = [row.as_py()[-1] % 2 for row in span["trace_id"]]
    for index in range(2):
        part = span.filter(pa.array([half == index for half in halves], pa.bool_()))
        write_table(part, partition_folder(folder, index) / "part.parquet")
    methods = span.select(["method_id", "service", "method"]).group_by(["method_id", "service", "method"])
    named = methods.aggregate([]).sort_by("method_id").cast(schema.METHOD)
    write_table(named, folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    for name, table in (("metric", metric), ("profile", profile)):
        if table is not None:
            write_table(table, folder / name / "part.parquet")
    write_manifest(folder, Manifest(partitions=2, spans=span.num_rows))
    store = Store.open(folder)
    return Study(store, DuckEngine(store, memory="500MB", threads=2))
