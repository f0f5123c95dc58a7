"""Where the percentiles of a method come to lie when stages take what they take in the median.

The percentile of total - Σ stages + m is that of total - Σ stages, with m, the median of Σ stages, added. Its
interval is Woodruff's: resampling whole traces tells how far the share of calls below the percentile may be off
(`bootstrap`), and the values at these shares bound it. m is not drawn anew.
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
from scotfree.study.analysis.per_method import PerMethod
from scotfree.study.analysis.quantiles import column
from scotfree.study.engine import Engine

Array = np.ndarray[Any, Any]
PS = (0.50, 0.95, 0.99)
_CELLS = pa.schema(
    [
        pa.field("cell", pa.int64()),
        pa.field("whole", pa.float64()),
        *(pa.field(column(p), pa.float64()) for p in PS),
    ]
)
_TIMES = [
    f"{name}" for p in PS for name in (f"before_{column(p)}", column(p), f"{column(p)}_low", f"{column(p)}_high")
]
REMOVED = pa.schema(
    [
        *schema.METHOD,
        pa.field("removed", pa.string(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        *(pa.field(name, pa.float64()) for name in _TIMES),
    ]
)


def percentiles(engine: Engine, per_method: PerMethod, names: Sequence[str]) -> pa.Table:
    """See `Study.removed`; `names` of sets as `quantities.named`."""
    rests = {name: quantities.rest(name.split("+")) for name in names}
    per_method.sketch([*names, *rests.values()])
    return pa.concat_tables([REMOVED.empty_table(), *(_set(engine, per_method, *pair) for pair in rests.items())])


def _set(engine: Engine, per_method: PerMethod, name: str, rest: str) -> pa.Table:
    found = per_method.table(rest).sort_by("method_id")
    methods = found["method_id"].to_numpy()
    everywhere = {column(p): np.full(per_method.methods.num_rows, p) for p in PS}
    median = per_method.at(name, {"median": everywhere[column(0.5)]})["median"][methods]
    before = per_method.at("total", everywhere)
    after = {column(p): _spread(found, column(p), per_method) for p in PS}
    limits = per_method.at(rest, _shares(engine, rest, after))
    columns: dict[str, Any] = {label: found[label] for label in (*schema.METHOD.names, "samples")}
    columns["removed"] = [name] * len(methods)
    for p in map(column, PS):
        columns[f"before_{p}"] = before[p][methods]
        columns[p] = after[p][methods] + median
        columns[f"{p}_low"] = np.minimum(limits[f"{p}_low"][methods], after[p][methods]) + median
        columns[f"{p}_high"] = np.maximum(limits[f"{p}_high"][methods], after[p][methods]) + median
    return pa.table([columns[label] for label in REMOVED.names], names=REMOVED.names).cast(REMOVED)


def _spread(found: pa.Table, name: str, per_method: PerMethod) -> Array:
    dense = np.full(per_method.methods.num_rows, np.nan)
    dense[found["method_id"].to_numpy()] = found[name].to_numpy()
    return dense


def _shares(engine: Engine, rest: str, after: Mapping[str, Array]) -> dict[str, Array]:
    """Per method the shares of calls between which each percentile lies in 95 of 100 resamples."""
    needed = sorted({"trace_id", "method_id", "status", "sample_weight", *quantities.columns(rest)})
    cells = engine.map_partitions(needed, partial(_count, rest, dict(after)), _CELLS)
    methods = len(next(iter(after.values())))
    sums = {name: _sum(cells, name, methods) for name in _CELLS.names[1:]}
    found = {}
    for p in PS:
        low, high = bootstrap.interval(bootstrap.ratios(sums[column(p)], sums["whole"]))
        # Resamples have the share at the percentile; its own share stays in the interval whatever they say.
        found[f"{column(p)}_low"] = np.clip(np.fmin(low, p), 0.0, 1.0)
        found[f"{column(p)}_high"] = np.clip(np.fmax(high, p), 0.0, 1.0)
    return found


def _sum(cells: pa.Table, name: str, methods: int) -> Array:
    size = methods * bootstrap.GROUPS
    sums: Array = np.bincount(cells["cell"].to_numpy(), cells[name].to_numpy(), size)
    return sums.reshape(methods, bootstrap.GROUPS)


def _count(rest: str, after: Mapping[str, Array], calls: pa.Table) -> pa.Table:
    """Of one partition, per method and group of traces: the weight of all calls, and of those up to each value."""
    calls = calls.filter(pc.equal(lending.whole(calls["status"]).cast(pa.string()), schema.STATUS_OK))
    value = lending.floats(quantities.value(rest)(Calls(calls)).values)
    method, weight = lending.integers(calls["method_id"]), lending.weights(calls["sample_weight"])
    cell = method * np.int64(bootstrap.GROUPS) + bootstrap.group_of(lending.whole(calls["trace_id"]))
    counted = {"whole": ~np.isnan(value) * weight}
    counted |= {name: (value <= limit[method]) * weight for name, limit in after.items()}
    summed = pa.table({"cell": cell, **counted}).group_by("cell").aggregate([(name, "sum") for name in counted])
    return pa.table([summed["cell"], *(summed[f"{name}_sum"] for name in counted)], schema=_CELLS)
