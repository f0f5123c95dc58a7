"""Calls by their total, and quantiles from that: exact of a group of few calls, in bins of 0.1 % of one of many.

A bin keeps the greatest total that fell into it, so that what is read off is a value that occurred. Histograms of
parts add up, and both engines sort some thousand bins and not the calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ibis
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.calls import weight
from scotfree.study.analysis.quantiles import weighted
from scotfree.study.engine import Engine

# The width of a bin: ten times finer than what is asked of a sketch, for a tail of 5 % may lie within 1 %.
STEP = schema.SKETCH_ERROR / 10


def binned(calls: Any, by: Sequence[str], sums: Sequence[str] = ()) -> Any:
    """Per group and bin: value (the greatest total), samples, weight, and the weighted sums of columns."""
    sizes = calls.group_by(list(by)).agg(group_samples=calls.count())
    joined = calls.inner_join(sizes, list(by))
    keyed = joined.mutate(bin=_bin(joined), each=weight(joined))
    parts = {name: (keyed[name].cast("float64") * keyed.each).sum() for name in sums}
    return keyed.group_by([*by, "bin"]).agg(
        value=keyed.total_ns.max(), samples=keyed.count(), weight=keyed.each.sum(), **parts
    )


def _bin(calls: Any) -> Any:
    fine = (calls.total_ns.cast("float64").clip(lower=1.0).ln() / math.log1p(STEP)).floor().cast("int64")
    return ibis.ifelse(calls.group_samples <= schema.EXACT_SAMPLES_MAX, calls.total_ns, fine)


def quantiles(calls: Any, by: Sequence[str], ps: Sequence[float]) -> Any:
    """An expression: per group samples, weight and the quantiles of the total (R6, R7)."""
    bins = binned(calls, by)
    counted = bins.group_by(list(by)).agg(samples=bins.samples.sum())
    found = weighted(bins.drop("samples"), by, ps).drop("samples", "effective_n")
    return found.inner_join(counted, list(by))


def nearest_rank(calls: Any, engine: Engine, by: Sequence[str], ps: Sequence[float]) -> pa.Table:
    """`quantiles`, computed, in the order of the groups."""
    return engine.arrow(quantiles(calls, by, ps).order_by(list(by)))
