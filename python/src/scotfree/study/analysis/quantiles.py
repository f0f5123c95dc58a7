"""Quantiles by nearest rank: the smallest value whose cumulative weight reaches p of all (R6, R7).

It is a value that occurred. Without weights it is the ceil(p n)-th smallest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ibis

from scotfree.study import schema
from scotfree.study.analysis import quantities
from scotfree.study.engine import column

__all__ = ["at", "column", "good", "values", "weight", "weighted", "within"]


def weighted(table: Any, by: Sequence[str], ps: Sequence[float]) -> Any:
    """Quantiles of `value` with `weight` in each group; exact, on every engine.

    Beside them the number of samples, their weight and the effective number of samples, which is that of equal
    weights with the same variance (R7).
    """
    ordered = ibis.window(group_by=list(by), order_by="value", preceding=None, following=0)
    whole = ibis.window(group_by=list(by))
    ranked = table.mutate(reached=table.weight.sum().over(ordered), all=table.weight.sum().over(whole))
    picks = {column(p): ranked.value.min(where=_is_reached(ranked, round(p * schema.PARTS))) for p in ps}
    total = ranked.weight.sum()
    effective = total * total / (ranked.weight * ranked.weight).sum()
    return ranked.group_by(list(by)).agg(samples=ranked.count(), weight=total, effective_n=effective, **picks)


def at(table: Any, limits: Any, names: Sequence[str]) -> Any:
    """Quantiles of `value` per method; a method's p of each name stands in `limits`, null where none is asked."""
    ordered = ibis.window(group_by="method_id", order_by="value", preceding=None, following=0)
    whole = ibis.window(group_by="method_id")
    ranked = table.mutate(reached=table.weight.sum().over(ordered), all=table.weight.sum().over(whole))
    joined = ranked.inner_join(limits, "method_id")
    parts = {name: (joined[name] * schema.PARTS).round(0) for name in names}
    picks = {name: joined.value.min(where=_is_reached(joined, part)) for name, part in parts.items()}
    return joined.group_by("method_id").agg(**picks)


def within(table: Any, bins: Any, p: float) -> Any:
    """The p-quantile of methods, of which it is known between which values it lies and what weighs less.

    `bins`: method_id, low, high (that value is no longer in it), below and all (weights).
    """
    joined = table.inner_join(bins, "method_id")
    near = joined.filter((joined.value >= joined.low) & (joined.value < joined.high))
    ordered = ibis.window(group_by="method_id", order_by="value", preceding=None, following=0)
    ranked = near.mutate(reached=near.below + near.weight.sum().over(ordered))
    found = ranked.group_by("method_id").agg(
        value=ranked.value.min(where=_is_reached(ranked, round(p * schema.PARTS)))
    )
    return found.filter(found.value.notnull())


def _is_reached(ranked: Any, part: Any) -> Any:
    """Whether the weight up to here is `part` ten-thousandths of all."""
    # In whole ten-thousandths, since 0.07 * 100 is more than 7.
    # Weights that are no sums of powers of two, such as 1 / 0.3, add up differently in another order: of 100 equal
    # ones, 95 would be less than 95 in 100.
    return ranked.reached * schema.PARTS >= ranked["all"] * part * (1 - schema.ROUNDING)


def good(span: Any) -> Any:
    """Calls that succeeded (R1)."""
    return span.filter(span.status == schema.STATUS_OK)


def weight(span: Any) -> Any:
    """How many calls each stands for (R7)."""
    return span.sample_weight.fill_null(1.0).cast("float64")


def values(span: Any, quantity: str) -> Any:
    """The calls of which the quantity is known: `method_id`, `value`, `weight`; only those that succeeded."""
    ok = good(span)
    found = ok.select("method_id", value=quantities.value(quantity)(ok), weight=weight(ok))
    return found.filter(found.value.notnull())
