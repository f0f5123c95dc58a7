"""Where calls stand in their traces (F4, F5)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree import _native
from scotfree.study.engine import Engine

_COLUMNS = ("trace_id", "span_id", "parent_id", "method_id", "sample_weight")
PLACES = pa.schema(
    [
        pa.field("method_id", pa.int32(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("descendants", pa.int64()),
        pa.field("ancestors", pa.int64()),
        pa.field("is_cyclic", pa.bool_(), nullable=False),
    ]
)


def places(engine: Engine) -> pa.Table:
    """Of every call, failed or not: its descendants and ancestors, null on a ring."""
    return engine.map_partitions(_COLUMNS, _partition, PLACES)


def _partition(calls: pa.Table) -> pa.Table:
    calls = calls.combine_chunks()
    parents = calls["parent_id"]
    traces = b"".join(calls["trace_id"].to_pylist())
    found = _native.tree(
        traces,
        calls["span_id"].to_numpy(),
        pc.fill_null(parents, 0).to_numpy(),
        pc.is_valid(parents).to_numpy(zero_copy_only=False).astype(np.uint8),
    )
    cyclic = np.frombuffer(found[2], np.uint8).astype(bool)
    below, above = (pa.array(np.frombuffer(part, np.uint32).astype(np.int64), mask=cyclic) for part in found[:2])
    weight = pc.fill_null(calls["sample_weight"], 1.0)
    return pa.table([calls["method_id"], weight, below, above, pa.array(cyclic)], schema=PLACES)
