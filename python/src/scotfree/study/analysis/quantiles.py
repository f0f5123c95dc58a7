"""Quantiles by nearest rank: the smallest value whose cumulative weight reaches p of all (R6, R7).

It is a value that occurred. Without weights it is the ceil(p n)-th smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ibis
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.engine import Engine

# What is asked per method, by name: from the table of calls to the value, null where it is not known.
QUANTITIES: dict[str, Callable[[Any], Any]] = {
    "total": lambda span: span.total_ns,
    "app": lambda span: span.server_app_ns,
    "tax_ratio": lambda span: (span.total_ns - span.server_app_ns) / span.total_ns.nullif(0),
    "req_bytes": lambda span: span.req_bytes,
    "resp_bytes": lambda span: span.resp_bytes,
    "size_ratio": lambda span: span.resp_bytes / span.req_bytes.nullif(0),
    "cpu_cycles": lambda span: span.cpu_cycles,
}

_PARTS = 10_000


def column(p: float) -> str:
    """The name of a quantile's column: p01 to p99."""
    return f"p{round(p * 100):02}"


def weighted(table: Any, by: Sequence[str], ps: Sequence[float]) -> Any:
    """Quantiles of `value` with `weight` in each group; exact, on every engine."""
    ordered = ibis.window(group_by=list(by), order_by="value", preceding=None, following=0)
    whole = ibis.window(group_by=list(by))
    ranked = table.mutate(reached=table.weight.sum().over(ordered), all=table.weight.sum().over(whole))
    # In whole ten-thousandths, since 0.07 * 100 is more than 7.
    picks = {
        column(p): ranked.value.min(where=ranked.reached * _PARTS >= ranked["all"] * round(p * _PARTS)) for p in ps
    }
    return ranked.group_by(list(by)).agg(samples=ranked.count(), weight=ranked.weight.sum(), **picks)


def good(span: Any) -> Any:
    """Calls that succeeded (R1)."""
    return span.filter(span.status == schema.STATUS_OK)


def per_method(engine: Engine, quantity: str) -> pa.Table:
    """The quantiles of a quantity per method, of methods with SAMPLES_MIN samples, by their median."""
    span = good(engine.table("span"))
    values = span.select("method_id", value=QUANTITIES[quantity](span), weight=span.sample_weight.fill_null(1.0))
    found = weighted(values.filter(values.value.notnull()), ["method_id"], schema.QUANTILES)
    found = found.filter(found.samples >= schema.SAMPLES_MIN)
    named = found.join(engine.table("methods"), "method_id")
    return engine.arrow(named.order_by([named.p50, named.method_id]))
