"""A small store of calls with what is awkward in it: weights, nulls, errors, trees, methods of few calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.store import Manifest, Store, partition_folder, write_manifest, write_table

Generator = np.random.Generator


def store(
    folder: Path, calls: int = 6_000, *, partitions: int = 3, methods: int = 8, is_weighted: bool = True
) -> Store:
    """Writes it."""
    random = np.random.default_rng(7)
    traces = random.integers(0, max(1, calls // 12), calls)
    rows = table(random, traces, methods)
    if not is_weighted:
        weight = rows.schema.get_field_index("sample_weight")
        rows = rows.set_column(weight, schema.SPAN.field(weight), pa.nulls(calls, pa.float64()))
    for index in range(partitions):
        write_table(
            rows.filter(pa.array(traces % partitions == index)), partition_folder(folder, index) / "part.parquet"
        )
    ids = range(methods)
    names = {"method_id": ids, "service": [f"s{i % 3}" for i in ids], "method": [f"m{i:02}" for i in ids]}
    write_table(pa.table(names, schema=schema.METHOD), folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    write_manifest(folder, Manifest(partitions=partitions, spans=calls, records_in=calls))
    return Store.open(folder)


def table(random: Generator, traces: Any, methods: int) -> pa.Table:
    """The calls of traces, given by number. A parent comes before its children; some parents are nowhere."""
    calls = len(traces)
    method = np.minimum(random.geometric(0.35, calls) - 1, methods - 1).astype(np.int32)
    stages = {
        name: random.lognormal(8 + i % 4, 1.5, calls).astype(np.int64)
        for i, name in enumerate(schema.STAGE_COLUMNS)
    }
    columns: dict[str, Any] = {
        "trace_id": pa.array([int(t).to_bytes(16, "big") for t in traces], pa.binary(16)),
        "span_id": np.arange(calls),
        "parent_id": _parents(random, traces),
        "start_ns": random.integers(0, 10**15, calls),
        "method_id": method,
        "service": [f"s{i % 3}" for i in method],
        "method": [f"m{i:02}" for i in method],
        "status": random.choice(["OK", "CANCELLED", "NOT_FOUND"], calls, p=[0.95, 0.03, 0.02]),
        **{name: _some(random, values, 0.02) for name, values in stages.items()},
        "total_ns": _some(random, sum(stages.values()), 0.01),
        "provenance": np.full(calls, schema.ALL_MEASURED),
        "req_bytes": _some(random, random.integers(0, 2_000, calls), 0.1),
        "resp_bytes": _some(random, random.integers(0, 9_000, calls), 0.1),
        "cpu_cycles": _some(random, random.lognormal(0, 1, calls), 0.3),
        "sample_weight": _some(random, random.choice([0.5, 1.0, 4.0], calls), 0.5),
    }
    rows = [columns.get(field.name, [None] * calls) for field in schema.SPAN]
    arrays = [_array(values, field.type) for values, field in zip(rows, schema.SPAN, strict=True)]
    return pa.table(arrays, schema=schema.SPAN)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(list(values), pa.string()).dictionary_encode()
    return values.cast(kind) if isinstance(values, pa.Array) else pa.array(values, kind)


def _some(random: Generator, values: Any, missing: float) -> pa.Array:
    return pa.array(values, mask=random.random(len(values)) < missing)


def _parents(random: Generator, traces: Any) -> list[int | None]:
    """The last call of the same trace, or an earlier one; now and then none, or one that is nowhere."""
    seen: dict[int, list[int]] = {}
    parents: list[int | None] = []
    for call, trace in enumerate(traces):
        earlier = seen.setdefault(int(trace), [])
        chance = random.random()
        parents.append(
            None if not earlier or chance < 0.05 else -1 if chance < 0.08 else earlier[int(chance * len(earlier))]
        )
        earlier.append(call)
    return parents
