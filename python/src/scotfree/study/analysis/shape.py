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


@dataclass(frozen=True)
class Shape:
    """All of it; rows as the questions below have them."""

    # The edge with most retries: client_service, service, method, retries, calls; None if there is none.
    retried: dict[str, Any] | None
    retries: int
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
    """Per edge the calls that a caller made again after one of the same method had failed it; most first."""
    calls = _named(span)
    below = calls.filter(calls.parent_id.notnull())
    order = ibis.window(group_by=["trace_id", "parent_id", "method_id"], order_by=["start_ns", "span_id"])
    before = below.mutate(before=below.status.lag().over(order))
    again = before.filter(before.before.notnull(), before.before != STATUS_OK)
    counted = again.group_by(list(_EDGE)).agg(retries=again.count())
    of = calls.group_by(list(_EDGE)).agg(calls=calls.count())
    found = counted.inner_join(of, list(_EDGE)).filter(lambda row: row.calls >= CALLS_MIN)
    return found.order_by([ibis.desc("retries"), *_EDGE])


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
