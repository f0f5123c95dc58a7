"""Stores to measure with: calls of many methods, popularity after Zipf, in trees, in no order. By numpy alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.store import (
    Manifest,
    Store,
    partition_folder,
    partitions_of,
    trace_words,
    write_manifest,
    write_table,
)

PARTITIONS = 64
# Calls of a trace, on average.
_TRACE_CALLS = 12
_STATUSES = ["OK", "CANCELLED", "NOT_FOUND"]

Generator = np.random.Generator


def store(calls: int, methods: int) -> Store:
    """A store of that size, made once for all arms and repetitions."""
    base = Path(os.environ.get("SCOT_BENCH_FOLDER", tempfile.gettempdir()))
    folder = base / f"scotfree-bench-{calls}-{methods}"
    if not (folder / "store.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _write(folder, calls, methods)
    return Store.open(folder)


def _write(folder: Path, calls: int, methods: int) -> None:
    names = _names(methods)
    for index in range(PARTITIONS):
        count = calls // PARTITIONS + (index < calls % PARTITIONS)
        rows = _partition(np.random.default_rng([calls, index]), index, count, names)
        write_table(rows, partition_folder(folder, index) / "part.parquet")
    write_table(names, folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    write_manifest(folder, Manifest(partitions=PARTITIONS, spans=calls, records_in=calls))


def _names(methods: int) -> pa.Table:
    ids = range(methods)
    services = [f"service{i // 20:03}" for i in ids]
    return pa.table([ids, services, [f"Method{i:05}" for i in ids]], schema=schema.METHOD)


def _partition(random: Generator, index: int, calls: int, names: pa.Table) -> pa.Table:
    traces, parents = _trees(random, index, calls)
    spans = random.integers(1, 2**62, calls)
    method = _methods(random, calls, names.num_rows)
    speed = np.exp(np.random.default_rng(names.num_rows).normal(0, 2, names.num_rows))[method]
    stages = {
        name: (speed * random.lognormal(9 + i % 4, 1, calls)).astype(np.int64)
        for i, name in enumerate(schema.STAGE_COLUMNS)
    }
    columns: dict[str, Any] = {
        "trace_id": traces,
        "span_id": spans,
        "parent_id": pa.array(spans[parents], mask=parents < 0),
        "start_ns": 1_700_000_000_000_000_000 + random.integers(0, 86_400 * 10**9, calls),
        "method_id": method,
        "service": _dictionary(method // 20, names["service"].unique()),
        "method": _dictionary(method, names["method"]),
        "client_service": _dictionary(method % 20 // 7, names["service"].unique()),
        "server_cluster": _dictionary(random.integers(0, 12, calls), _labels("cluster", 12)),
        "client_cluster": _dictionary(random.integers(0, 12, calls), _labels("cluster", 12)),
        "server_machine": _dictionary(random.integers(0, 500, calls), _labels("machine", 500)),
        "client_machine": _dictionary(random.integers(0, 500, calls), _labels("machine", 500)),
        "status": _dictionary(random.choice(3, calls, p=[0.981, 0.011, 0.008]), pa.array(_STATUSES)),
        **stages,
        "total_ns": sum(stages.values()),
        "request_side_ns": sum(list(stages.values())[: schema.APP]),
        "response_side_ns": sum(list(stages.values())[schema.APP + 1 :]),
        "provenance": np.full(calls, schema.ALL_MEASURED),
        "req_bytes": random.lognormal(7, 2, calls).astype(np.int64),
        "resp_bytes": random.lognormal(6, 2, calls).astype(np.int64),
        "cpu_cycles": random.lognormal(0, 1, calls),
        "sample_weight": np.ones(calls),
    }
    order = pa.array(random.permutation(calls))
    return pa.table(
        [_array(columns.get(field.name), field.type, calls) for field in schema.SPAN], schema=schema.SPAN
    ).take(order)


def _array(values: Any, kind: pa.DataType, calls: int) -> pa.Array:
    if values is None:
        return pa.nulls(calls, kind)
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _methods(random: Generator, calls: int, methods: int) -> Any:
    popularity = 1 / np.arange(1, methods + 1)
    return random.choice(methods, calls, p=popularity / popularity.sum()).astype(np.int32)


def _trees(random: Generator, index: int, calls: int) -> tuple[pa.Array, Any]:
    """Trace ids that belong into this partition, and of each call the place of its parent, -1 of roots."""
    number = np.sort(random.integers(0, max(1, calls // _TRACE_CALLS), calls))
    first = np.searchsorted(number, number)
    place = np.arange(calls)
    parents = np.where(place == first, -1, first + (random.random(calls) ** 2 * (place - first)).astype(np.int64))
    ids = _ids(random, index, calls // _TRACE_CALLS + 1)
    return ids.take(pa.array(number)), parents


def _ids(random: Generator, index: int, count: int) -> pa.Array:
    """That many random ids of which the hash is the partition's."""
    drawn = pa.array([], pa.binary(16))
    while len(drawn) < count:
        made = 2 * PARTITIONS * (count - len(drawn)) + PARTITIONS
        ids = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), made, [None, pa.py_buffer(random.bytes(16 * made))]
        )
        drawn = pa.concat_arrays(
            [drawn, ids.filter(pa.array(partitions_of(trace_words(ids), PARTITIONS) == index))]
        )
    return drawn.slice(0, count)


def _labels(what: str, count: int) -> pa.Array:
    return pa.array([f"{what}{i:03}" for i in range(count)])


def _dictionary(indices: Any, values: Any) -> pa.Array:
    plain = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), plain)
