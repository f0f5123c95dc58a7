"""Quantiles of methods of many calls: histograms by the kernel in Rust, filled for many quantities in one pass.

A value of it is the middle of a bin, within 1 % of the one that occurred (crates/scotfree-study, histogram.rs).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree import _native
from scotfree.study import schema
from scotfree.study.analysis import lending, quantities, trees
from scotfree.study.analysis.columns import Calls
from scotfree.study.engine import Engine

Array = np.ndarray[Any, Any]
# As in crates/scotfree-study, histogram.rs.
_BITS_DROPPED = 46
# `key` is the quantity's number times the methods, plus the method.
BINS = pa.schema(
    [
        pa.field("key", pa.uint32(), nullable=False),
        pa.field("bin", pa.int32(), nullable=False),
        pa.field("samples", pa.uint64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("squares", pa.float64(), nullable=False),
    ]
)


class Sketch:
    """The bins of one quantity, in the order of method and bin."""

    def __init__(self, bins: pa.Table, methods: int) -> None:
        self._bins = bins
        keys = bins["key"].to_numpy()
        self._starts = np.searchsorted(keys, np.arange(methods + 1))
        self._reached = np.concatenate([[0.0], np.cumsum(bins["weight"].to_numpy())])
        self.values = np.frombuffer(_native.bin_values(lending.integers(bins["bin"])), np.float64)

    def sums(self, column: str) -> Array:
        """Of each method the sum of a column of `BINS`."""
        reached = np.concatenate([[0], np.cumsum(self._bins[column].to_numpy())])
        sums: Array = np.diff(reached[self._starts])
        return sums

    def places(self, ps: Array) -> Array:
        """The rows of the bins that hold each method's p-quantile, -1 without a sample; `ps` has one for each."""
        start, end = self._starts[:-1], self._starts[1:]
        low, high = self._reached[start], self._reached[end]
        wanted = low + (high - low) * (np.round(ps * schema.PARTS) / schema.PARTS) * (1 - schema.ROUNDING)
        found = np.searchsorted(self._reached, wanted, side="left") - 1
        places: Array = np.where(end > start, np.clip(found, start, end - 1), -1)
        return places

    def bounds(self, p: float, methods: Array) -> pa.Table:
        """Of methods with a sample the bin of the p-quantile, as `quantiles.within` takes it."""
        places = self.places(np.full(len(self._starts) - 1, p))
        methods = methods[places[methods] >= 0]
        at = places[methods]
        bins = self._bins["bin"].to_numpy()[at]
        low, high = edges(bins)
        start, end = self._starts[methods], self._starts[methods + 1]
        below = self._reached[at] - self._reached[start]
        return pa.table(
            {
                "method_id": pa.array(methods, pa.int32()),
                "low": low,
                "high": high,
                "below": below,
                "all": self._reached[end] - self._reached[start],
            }
        )

    def quantile(self, p: float | Array) -> Array:
        """Of each method the p-quantile; NaN if it has no sample."""
        places = self.places(np.broadcast_to(np.float64(p), len(self._starts) - 1))
        values = np.full(len(places), np.nan)
        values[places >= 0] = self.values[places[places >= 0]]
        return values


def sketch(engine: Engine, wanted: Array, names: Sequence[str]) -> dict[str, Sketch]:
    """Sketches of quantities by name, of the methods that are wanted (a byte each): one pass over the store."""
    kernel = partial(_partition, wanted, tuple(names))
    bins = merged(engine.iter_partitions(_columns(names), kernel, BINS))
    methods = len(wanted)
    keys = np.searchsorted(bins["key"].to_numpy(), np.arange(len(names) + 1) * methods)
    found = {}
    for which, name in enumerate(names):
        part = bins.slice(keys[which], keys[which + 1] - keys[which])
        own = pc.subtract(part["key"].cast(pa.int64()), which * methods).cast(pa.uint32())
        found[name] = Sketch(part.set_column(0, BINS.field("key"), own), methods)
    return found


def merged(parts: Iterable[pa.Table]) -> pa.Table:
    """All as one, each added as it comes: one sum is in memory, and not also the parts."""
    sum_of = _native.Histogram()
    for part in parts:
        sum_of.add(tuple(lending.integers(part[name]) for name in BINS.names))
    return _bins(sum_of.take())


def edges(bins: Array) -> tuple[Array, Array]:
    """The least value of each bin, and the least above that is not in it."""
    near, far = ((np.abs(bins).astype(np.int64) + further << _BITS_DROPPED).view(np.float64) for further in (0, 1))
    inwards, outwards = np.nextafter(-far, 0.0), np.nextafter(-near, np.inf)
    return np.where(bins > 0, near, inwards), np.where(bins < 0, outwards, far)


def _columns(names: Sequence[str]) -> list[str]:
    needed = {"method_id", "status", "sample_weight"}
    for name in names:
        needed.update(trees.COLUMNS if quantities.is_of_tree(name) else quantities.columns(name))
    return sorted(needed)


def _partition(wanted: Array, names: Sequence[str], calls: pa.Table) -> pa.Table:
    """The bins of one partition."""
    by_method = _native.ByMethod(lending.integers(calls["method_id"]), lending.read_only(wanted))
    weights = lending.weights(calls["sample_weight"])
    is_good = pc.equal(lending.whole(calls["status"]).cast(pa.string()), schema.STATUS_OK)
    places = trees.partition(calls) if any(map(quantities.is_of_tree, names)) else None
    parts = []
    for which, name in enumerate(names):
        if quantities.is_of_tree(name) and places is not None:
            values = places[name]
        else:
            values = pc.if_else(is_good, quantities.value(name)(Calls(calls)).values, None)
        part = _bins(by_method.bins(lending.floats(values), weights))
        key = pc.add(part["key"], pa.scalar(which * len(wanted), pa.uint32()))
        parts.append(part.set_column(0, BINS.field("key"), key))
    return pa.concat_tables(parts)


def _bins(columns: Sequence[bytes]) -> pa.Table:
    count = len(columns[0]) // 4
    arrays = [
        pa.Array.from_buffers(field.type, count, [None, pa.py_buffer(column)])
        for field, column in zip(BINS, columns, strict=True)
    ]
    return pa.table(arrays, schema=BINS)
