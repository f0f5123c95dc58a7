"""A generated fleet with what a fleet's own calls do not have: unknown times and sizes, parents that are nowhere,
weights whose sums depend on the order of adding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.store import Store, write_table

# Shares of calls of which something is not known.
_UNKNOWN = {
    **dict.fromkeys(schema.STAGE_COLUMNS, 0.01),
    "total_ns": 0.01,
    "req_bytes": 0.05,
    "resp_bytes": 0.05,
    "cpu_cycles": 0.1,
    "client_cluster": 0.02,
    "server_cluster": 0.02,
    "server_machine": 0.02,
    "client_service": 0.02,
    "is_hedge": 0.2,
    "sample_weight": 0.1,
}
_ODD_WEIGHTS = (1 / 0.3, 1 / 0.7, 0.1)

Generator = np.random.Generator


def store(folder: Path, calls: int = 20_000, *, methods: int = 60, partitions: int = 4) -> Store:
    """Writes it."""
    generate(folder, FleetOptions(spans=calls, methods=methods, partitions=partitions))
    for index, file in enumerate(Store.open(folder).files("span")):
        calls_there = pq.read_table(file, partitioning=None)
        write_table(_spoiled(np.random.default_rng(index), calls_there), file)
    return Store.open(folder)


def _spoiled(random: Generator, calls: pa.Table) -> pa.Table:
    weights = random.choice(_ODD_WEIGHTS, calls.num_rows)
    calls = _with(calls, "sample_weight", pa.array(weights))
    # No call has this number.
    nowhere = np.where(random.random(calls.num_rows) < 0.02, np.int64(1), calls["parent_id"].to_numpy())
    calls = _with(calls, "parent_id", pa.array(nowhere, pa.int64(), from_pandas=True))
    for name, share in _UNKNOWN.items():
        is_unknown = pa.array(random.random(calls.num_rows) < share)
        calls = _with(calls, name, _without(calls[name], is_unknown))
    return calls


def _without(column: Any, is_unknown: pa.Array) -> Any:
    return pc.if_else(is_unknown, pa.scalar(None, column.type), column)


def _with(calls: pa.Table, name: str, column: Any) -> pa.Table:
    place = calls.schema.get_field_index(name)
    return calls.set_column(place, calls.schema.field(name), column)
