"""How much there is of each method: calls, time, bytes, cycles, and how much of it is known (F3, F8, F9, F10)."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.engine import Engine

_AMOUNTS = ("req_bytes", "resp_bytes", "req_wire_bytes", "resp_wire_bytes", "cpu_cycles", "cpu_ns")


def per_method(engine: Engine) -> pa.Table:
    """A row for each method with a call.

    Of all calls: calls, weight (they stand for so many, R7), errors, error_weight, sum_req_bytes … sum_cpu_ns and
    known_req_bytes … (calls of which it is known).
    Of calls that succeeded (R1): known_total, sum_total_ns; for each stage known_STAGE, sum_STAGE_ns; pairs (total
    and application known) with pair_total_ns, pair_app_ns; complete (total and all nine known) with
    complete_total_ns, complete_STAGE_ns. Sums are weighted, known_… count rows.
    """
    span = engine.table("span")
    span = span.mutate(weight=span.sample_weight.fill_null(1.0), is_good=span.status == schema.STATUS_OK)
    aggregates = {**_all_calls(span), **_good_calls(span), **_pairs(span), **_complete(span)}
    table = span.group_by("method_id").agg(**aggregates)
    joined = table.inner_join(engine.table("methods"), "method_id")
    shown = joined.select("method_id", "service", "method", *aggregates)
    return engine.arrow(shown.order_by("method_id"))


def _all_calls(span: Any) -> dict[str, Any]:
    failed = ~span.is_good
    return {
        "calls": span.count(),
        "weight": span.weight.sum(),
        "errors": span.count(where=failed),
        "error_weight": _or_0(span.weight.sum(where=failed)),
        **{f"sum_{name}": _sum(span, name) for name in _AMOUNTS},
        **{f"known_{name}": span[name].count() for name in _AMOUNTS},
    }


def _good_calls(span: Any) -> dict[str, Any]:
    good = span.is_good
    return {
        "known_total": span.total_ns.count(where=good),
        "sum_total_ns": _sum(span, "total_ns", good),
        **{f"known_{stage}": span[f"{stage}_ns"].count(where=good) for stage in schema.STAGES},
        **{f"sum_{name}": _sum(span, name, good) for name in schema.STAGE_COLUMNS},
    }


def _pairs(span: Any) -> dict[str, Any]:
    both = span.is_good & span.total_ns.notnull() & span.server_app_ns.notnull()
    return {
        "pairs": span.count(where=both),
        "pair_total_ns": _sum(span, "total_ns", both),
        "pair_app_ns": _sum(span, "server_app_ns", both),
    }


def _complete(span: Any) -> dict[str, Any]:
    names = ("total_ns", *schema.STAGE_COLUMNS)
    whole = reduce(and_, [span[name].notnull() for name in names], span.is_good)
    return {
        "complete": span.count(where=whole),
        **{f"complete_{name}": _sum(span, name, whole) for name in names},
    }


def _sum(span: Any, name: str, where: Any = None) -> Any:
    return _or_0((span[name] * span.weight).sum(where=where))


def _or_0(value: Any) -> Any:
    return value.fill_null(0.0)
