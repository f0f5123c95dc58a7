"""What if stages took what they take in the median: who leaves the tail (F15), where the percentiles come to lie.

Of each method T is the P95 of the total and m the median of a stage, both over all its calls. A call above T
leaves the tail if total - stage + m < T. For a set of stages their sum is taken as one stage, m being the median
of the sum: an answer that does not depend on how finely the time was cut. (The sum of the medians would be lower
where stages are skewed, and promise more.) T and m are not drawn anew in the resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import bootstrap, lending, quantities
from scotfree.study.analysis.columns import Calls
from scotfree.study.engine import Engine

Array = np.ndarray[Any, Any]
_COLUMNS = ("trace_id", "method_id", "status", "sample_weight", "total_ns")
# Of one set of stages, one method and one group of traces; `which` counts the sets, `cell` the methods and groups.
_CELLS = pa.schema(
    [
        pa.field("which", pa.int64()),
        pa.field("cell", pa.int64()),
        pa.field("samples", pa.int64()),
        pa.field("tail", pa.float64()),
        pa.field("leaves", pa.float64()),
    ]
)
SHARES = pa.schema(
    [
        pa.field("method_id", pa.int32()),
        pa.field("service", pa.string()),
        pa.field("method", pa.string()),
        pa.field("removed", pa.string(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("tail", pa.float64(), nullable=False),
        pa.field("leaves", pa.float64()),
        pa.field("leaves_low", pa.float64()),
        pa.field("leaves_high", pa.float64()),
    ]
)


def shares(engine: Engine, methods: pa.Table, tails: pa.Table, sums: Mapping[str, pa.Table]) -> pa.Table:
    """See `Study.what_if`; `tails` says where they begin, `sums` has the quantiles of sets of stages by name."""
    bounds = dense(tails, "bound_ns", methods.num_rows)
    medians = {name: dense(found, "p50", methods.num_rows) for name, found in sums.items()}
    needed = sorted({*_COLUMNS}.union(*(quantities.columns(name) for name in sums)))
    found = engine.map_partitions(needed, partial(_count, bounds, medians), _CELLS)
    shape = (len(medians), methods.num_rows, bootstrap.GROUPS)
    cells = {name: _spread(found, name, shape) for name in ("samples", "tail", "leaves")}
    return _table(methods, list(medians), cells)


def dense(found: pa.Table, column: str, methods: int) -> Array:
    """A column by method_id, NaN for methods that are not there."""
    values = np.full(methods, np.nan)
    values[found["method_id"].to_numpy()] = found[column].to_numpy()
    return values


def _count(bounds: Array, medians: Mapping[str, Array], calls: pa.Table) -> pa.Table:
    """Of one partition: samples, tail, and those that leave it. Only the tail's rows are looked at further."""
    calls = _tail(bounds, calls)
    method = lending.integers(calls["method_id"])
    cell = method * np.int64(bootstrap.GROUPS) + bootstrap.group_of(lending.whole(calls["trace_id"]))
    cells, place = np.unique(cell, return_inverse=True)
    weight, bound = lending.weights(calls["sample_weight"]), bounds[method]
    parts = [_CELLS.empty_table()]
    for which, (name, median) in enumerate(medians.items()):
        rest = lending.floats(quantities.value(quantities.rest(name.split("+")))(Calls(calls)).values)
        left = rest + median[method]
        known = ~np.isnan(left)
        counted = (known, known * weight, (left < bound) * weight)
        sums = [np.bincount(place, each, len(cells)) for each in counted]
        columns = [np.full(len(cells), which), cells, sums[0].astype(np.int64), *sums[1:]]
        parts.append(pa.table(columns, schema=_CELLS))
    return pa.concat_tables(parts)


def _tail(bounds: Array, calls: pa.Table) -> pa.Table:
    """The calls above their method's bound that succeeded (R1)."""
    method, total = lending.integers(calls["method_id"]), lending.floats(calls["total_ns"])
    # No number compares as false: neither a method without a bound nor a call without a total is above.
    above = calls.take(pa.array(np.flatnonzero(total > bounds[method])))
    return above.filter(pc.equal(lending.whole(above["status"]).cast(pa.string()), schema.STATUS_OK))


def _spread(cells: pa.Table, name: str, shape: Sequence[int]) -> Array:
    """The cells' sums at their places: sets x methods x groups."""
    size = int(np.prod(shape))
    place = cells["which"].to_numpy() * (shape[1] * shape[2]) + cells["cell"].to_numpy()
    sums: Array = np.bincount(place, cells[name].to_numpy(), size).reshape(shape)
    return sums


def _table(methods: pa.Table, names: Sequence[str], cells: Mapping[str, Array]) -> pa.Table:
    """Rows of all sets and methods with a sample, and of all methods together."""
    parts = [SHARES.empty_table()]
    for which, name in enumerate(names):
        there = np.flatnonzero(cells["samples"][which].any(axis=1))
        if len(there) == 0:
            continue
        samples, tail, leaves = (_with_fleet(cells[each][which][there]) for each in ("samples", "tail", "leaves"))
        low, high = bootstrap.interval(bootstrap.ratios(leaves, tail))
        # The last row, of all methods, is no method's.
        labels = methods.take(pa.array([*there, None], pa.int64()))
        columns = {
            **{label: labels[label] for label in schema.METHOD.names},
            "removed": [name] * len(labels),
            "samples": samples.sum(axis=1).astype(np.int64),
            "tail": tail.sum(axis=1),
            "leaves": _or_null(_ratio(leaves, tail)),
            "leaves_low": _or_null(low),
            "leaves_high": _or_null(high),
        }
        parts.append(pa.table([columns[label] for label in SHARES.names], names=SHARES.names).cast(SHARES))
    return pa.concat_tables(parts)


def _or_null(values: Array) -> pa.Array:
    return pa.array(values, mask=np.isnan(values))


def _with_fleet(cells: Array) -> Array:
    return np.vstack([cells, cells.sum(axis=0)])


def _ratio(leaves: Array, tail: Array) -> Array:
    whole = tail.sum(axis=1)
    share: Array = np.divide(leaves.sum(axis=1), whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return share
