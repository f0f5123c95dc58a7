"""Each service's share of processor time (F8c): from profiles, or from the cycles of its calls."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis.study import Study

_SHARES = pa.schema(
    [
        pa.field("service", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("share", pa.float64(), nullable=False),
        # "profile" or "calls".
        pa.field("source", pa.string(), nullable=False),
    ]
)


def cycles_by_service(study: Study) -> pa.Table:
    """service, weight, share (0 to 1), source, the largest first; no row where neither source is there.

    Profiles go first: they count all that a service does, the cycles of calls only what was attributed to them.
    """
    tax = study.cycle_tax()
    if tax is None:
        return _shares(_calls(study), "calls")
    weights = tax.services.group_by("service").aggregate([("weight", "sum")])
    return _shares(weights.rename_columns(["service", "weight"]), "profile")


def _calls(study: Study) -> pa.Table:
    span: Any = study.span
    known = span.filter(span.cpu_cycles.notnull())
    weight = (known.cpu_cycles * known.sample_weight.fill_null(1.0)).sum()
    return study.engine.arrow(known.group_by("service").agg(weight=weight).order_by(ibis.desc("weight")))


def _shares(weights: pa.Table, source: str) -> pa.Table:
    ordered = weights.sort_by([("weight", "descending"), ("service", "ascending")])
    columns = [
        ordered["service"].cast(pa.string()),
        ordered["weight"].cast(pa.float64()),
        pc.divide(ordered["weight"].cast(pa.float64()), pc.sum(ordered["weight"].cast(pa.float64()))),
        pa.array([source] * ordered.num_rows, pa.string()),
    ]
    return pa.Table.from_arrays([_whole(column) for column in columns], schema=_SHARES)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
