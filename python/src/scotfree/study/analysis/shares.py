"""Sums of time per method: of all its calls, of its own P95 tail and of the P95 tail of all calls (F10).

All of F10 is a ratio of two of these sums; so are the shares that rank the findings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis.calls import all_stages, timed, weight
from scotfree.study.analysis.histogram import nearest_rank
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study

TAIL = 0.95
# How much is known of a call: its total; the application's time; what lies before and behind that; all stages.
TOTAL, APP, SIDES, STAGES = 0, 1, 2, 3
_SUMMED = (*schema.STAGE_COLUMNS, "request_side_ns", "response_side_ns")


@once
def global_tail_ns(study: Study) -> float | None:
    """The P95 of the totals of all calls together; within `histogram.STEP` above 10,000 calls."""
    calls = timed(study.span).mutate(everything=ibis.literal(0))
    found = nearest_rank(calls, study.engine, ["everything"], [TAIL])
    return float(found[column(TAIL)][0].as_py()) if found.num_rows else None


@once
def tails(study: Study) -> pa.Table:
    """method_id and threshold_ns: the P95 of each method with enough samples (R3), exact."""
    found = study.bounds(TAIL)
    return pa.table({"method_id": found["method_id"], "threshold_ns": found["bound_ns"].cast(pa.float64())})


@once
def sums(study: Study) -> pa.Table:
    """Weighted sums by method_id, in_tail, in_global_tail and known.

    Columns: samples, weight, total_ns and the sum of each stage and side; ratio_weight and each one's sum of
    shares of its call's total (`NAME_ratio`), of calls that took any time. A call is in its tail from the P95 on:
    total >= P95.
    """
    calls = _with_tails(study)
    by = ["method_id", "in_tail", "in_global_tail", "known"]
    return study.engine.arrow(calls.group_by(by).agg(**_sums(calls)))


def _with_tails(study: Study) -> Any:
    calls = timed(study.span)
    thresholds = study.engine.register("tail_thresholds", tails(study))
    joined = calls.left_join(thresholds, "method_id")
    overall = global_tail_ns(study)
    sides = {name: joined[name].coalesce(_sum_of(joined, stages)) for name, stages in _SIDES.items()}
    joined = joined.mutate(**sides)
    return joined.mutate(
        in_tail=(joined.total_ns >= joined.threshold_ns).fill_null(False),
        in_global_tail=joined.total_ns >= (overall if overall is not None else 0.0),
        known=_known(joined),
    )


# What lies before the application, and behind it.
_SIDES = {
    "request_side_ns": schema.STAGE_COLUMNS[: schema.APP],
    "response_side_ns": schema.STAGE_COLUMNS[schema.APP + 1 :],
}


def _sum_of(calls: Any, names: Sequence[str]) -> Any:
    return reduce(add, (calls[name] for name in names))


def _known(calls: Any) -> Any:
    app = ibis.ifelse(calls.server_app_ns.notnull(), APP, TOTAL)
    both = calls.server_app_ns.notnull() & calls.request_side_ns.notnull() & calls.response_side_ns.notnull()
    return ibis.ifelse(all_stages(calls), STAGES, ibis.ifelse(both, SIDES, app)).cast("int64")


def _sums(calls: Any) -> dict[str, Any]:
    each = weight(calls)
    total = calls.total_ns.cast("float64")
    sums: dict[str, Any] = {
        "samples": calls.count(),
        "weight": each.sum(),
        "total_ns": (total * each).sum(),
        "ratio_weight": each.sum(where=total > 0),
    }
    for name in _SUMMED:
        time = calls[name].cast("float64")
        sums[name] = (time * each).sum()
        sums[f"{name}_ratio"] = (time / total.nullif(0.0) * each).sum()
    return sums


def select(table: pa.Table, *, known: int, within: str | None = None) -> pa.Table:
    """The rows of `sums` of calls of which at least so much is known, of all or of the tail `within`."""
    rows = table.filter(pc.greater_equal(table["known"], known))
    return rows.filter(rows[within]) if within else rows


def summed(table: pa.Table, name: str) -> float:
    """A column's sum; 0 of nothing."""
    return float(np.nansum(table[name].to_numpy(zero_copy_only=False).astype(float)))
