"""Which calls count where, as Ibis expressions: rules R1, R4 and R7, and what is known of a call."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

from scotfree.study import schema
from scotfree.study.analysis.quantiles import good

HALF_HOUR_NS = 30 * 60 * 1_000_000_000


def weight(span: Any) -> Any:
    """For how many calls this one stands (R7): 1 where nothing is said."""
    return span.sample_weight.fill_null(1.0)


def all_stages(span: Any) -> Any:
    """Whether each of the nine stages is known."""
    return reduce(and_, (span[name].notnull() for name in schema.STAGE_COLUMNS))


def timed(span: Any) -> Any:
    """Calls that succeeded (R1) and whose total is known, as their client saw it."""
    calls = good(span)
    return calls.filter(calls.total_ns.notnull())


def staged(span: Any) -> Any:
    """Of `timed` those with all nine stages."""
    calls = timed(span)
    return calls.filter(all_stages(calls))


def within_cluster(span: Any) -> Any:
    """Calls whose client is in the cluster of their server (R4)."""
    return span.filter(span.client_cluster == span.server_cluster)


def window(start_ns: Any) -> Any:
    """The number of the half hour in which something happened (F17, F18)."""
    return (start_ns // HALF_HOUR_NS).cast("int64")
