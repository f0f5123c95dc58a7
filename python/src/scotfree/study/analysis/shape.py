"""What calls are like that needs no stage: repeated after an error, made in numbers, made within one machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import ibis

from scotfree.study.analysis import histogram
from scotfree.study.analysis.calls import timed
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study
from scotfree.study.schema import STATUS_OK

# Of an edge with fewer calls nothing is said.
CALLS_MIN: Final = 5
_EDGE: Final = ("client_service", "service", "method")
# In standard deviations: calls of one trace are not independent, so more than a single test asks.
_SURE: Final = 4.0


@dataclass(frozen=True)
class Shape:
    """All of it; rows as the questions below have them."""

    # The edge with most retries, None if none is sure: client_service, service, method, calls; failed (calls that
    # others of the same caller could follow), again (failed calls that one did follow), usual (how many would be
    # followed if a failed call were as any other), retries (the difference).
    retried: dict[str, Any] | None
    # Of all such edges.
    retries: float
    # The edge of which one call makes most: client_service, service, method, callers, most, calls; None of none.
    fanned: dict[str, Any] | None
    # Calls that name both machines, and of them those within one, with the median total of each kind, ns.
    placed: int
    within: int
    within_ns: float | None
    across_ns: float | None


@once
def shape(study: Study) -> Shape:
    """Of all calls."""
    retried = _rows(study, _retries(study.span))
    fanned = _rows(study, _fan_out(study.span))
    placed = _placed(study)
    within, across = (placed.get(key, {"samples": 0, "p50": None}) for key in (True, False))
    return Shape(
        next(iter(retried), None),
        sum(row["retries"] for row in retried),
        next(iter(fanned), None),
        within["samples"] + across["samples"],
        within["samples"],
        within["p50"],
        across["p50"],
    )


def _rows(study: Study, question: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = study.engine.arrow(question).to_pylist()
    return found


def _named(span: Any) -> Any:
    return span.mutate(client_service=span.client_service.fill_null(""))


def _retries(span: Any) -> Any:
    """Per edge how often a caller calls again after a call that failed, beyond what it does after any other.

    Compared are calls of the same caller's method and of the same place among its calls of one method: whoever
    makes many calls anyway sees more of them fail, and goes on after most. (Mantel and Haenszel's test.)
    """
    calls = _named(span)
    made = calls.filter(calls.parent_id.notnull(), ~calls.is_hedge.fill_null(False))
    order = ibis.window(group_by=["trace_id", "parent_id", "method_id"], order_by=["start_ns", "span_id"])
    each = made.mutate(
        place=ibis.row_number().over(order),
        failed=(made.status != STATUS_OK).cast("int64"),
        again=made.span_id.lead().over(order).notnull().cast("int64"),
    )
    callers = calls.select("trace_id", parent_id=calls.span_id, caller=calls.method_id)
    each = each.left_join(callers, ["trace_id", "parent_id"])
    strata = each.group_by([*_EDGE, "caller", "place"]).agg(
        calls=each.count().cast("float64"),
        failed=each.failed.sum().cast("float64"),
        again=each.again.sum().cast("float64"),
        both=(each.failed * each.again).sum().cast("float64"),
    )
    # Where all fail there is nothing to compare with.
    strata = strata.filter(strata.failed > 0, strata.failed < strata.calls)
    sums = strata.group_by(list(_EDGE)).agg(
        failed=strata.failed.sum(),
        again=strata.both.sum(),
        usual=(strata.failed * (strata.again - strata.both) / (strata.calls - strata.failed)).sum(),
        above=(strata.both - strata.failed * strata.again / strata.calls).sum(),
        variance=_by_chance(strata).sum(),
    )
    sums = sums.mutate(retries=sums.again - sums.usual)
    sure = sums.filter(sums.retries >= CALLS_MIN, sums.above > _SURE * sums.variance.sqrt())
    of = calls.group_by(list(_EDGE)).agg(calls=calls.count())
    return sure.inner_join(of, list(_EDGE)).order_by([ibis.desc("retries"), *_EDGE])


def _by_chance(strata: Any) -> Any:
    """The variance of how many failed calls are followed by another if failing has nothing to do with that."""
    others, last = strata.calls - strata.failed, strata.calls - strata.again
    return strata.failed * others * strata.again * last / (strata.calls * strata.calls * (strata.calls - 1))


def _fan_out(span: Any) -> Any:
    """Per edge the greatest number of calls that one caller makes; more than one, the most first."""
    calls = _named(span)
    below = calls.filter(calls.parent_id.notnull())
    each = below.group_by(["trace_id", "parent_id", *_EDGE]).agg(made=below.count())
    found = each.group_by(list(_EDGE)).agg(callers=each.count(), most=each.made.max(), calls=each.made.sum())
    found = found.filter(found.most > 1, found.calls >= CALLS_MIN)
    return found.order_by([ibis.desc("most"), *_EDGE]).limit(1)


def _placed(study: Study) -> dict[bool, dict[str, Any]]:
    """Calls within one machine, True, and across machines, where both are named: samples and p50."""
    calls = timed(study.span)
    both = calls.filter(calls.client_machine.notnull(), calls.server_machine.notnull())
    told = both.mutate(within=both.client_machine.cast("string") == both.server_machine.cast("string"))
    return {row["within"]: row for row in _rows(study, histogram.quantiles(told, ("within",), (0.5,)))}
