"""Where calls stand in their traces (F4, F5)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree import _native
from scotfree.study.analysis import lending
from scotfree.study.engine import Engine

Array = np.ndarray[Any, Any]
COLUMNS = ("trace_id", "span_id", "parent_id", "method_id", "sample_weight")
PLACES = pa.schema(
    [
        pa.field("method_id", pa.int32(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("descendants", pa.int64()),
        pa.field("ancestors", pa.int64()),
        pa.field("is_cyclic", pa.bool_(), nullable=False),
    ]
)


def places(engine: Engine, is_wanted: Array) -> pa.Table:
    """Of calls, failed or not, their descendants and ancestors, null on a ring.

    Of methods that are wanted; what is on a ring is there in any case.
    """
    return engine.map_partitions(COLUMNS, partial(_wanted, is_wanted), PLACES)


def _wanted(is_wanted: Array, calls: pa.Table) -> pa.Table:
    found = partition(calls)
    return found.filter(pc.or_(found["is_cyclic"], pa.array(is_wanted[found["method_id"].to_numpy()])))


def partition(calls: pa.Table) -> pa.Table:
    """`places` of one partition, in its order."""
    found = _native.tree(
        lending.fixed_bytes(calls["trace_id"]),
        lending.integers(calls["span_id"]),
        lending.integers(calls["parent_id"]),
        lending.known(calls["parent_id"]),
    )
    cyclic = np.frombuffer(found[2], np.uint8).astype(bool)
    below, above = (pa.array(np.frombuffer(part, np.uint32).astype(np.int64), mask=cyclic) for part in found[:2])
    weight = lending.weights(calls["sample_weight"])
    return pa.table([lending.whole(calls["method_id"]), weight, below, above, pa.array(cyclic)], schema=PLACES)
