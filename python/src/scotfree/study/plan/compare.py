"""Two data sets, method by method: percentiles and tax share with intervals, and which leave their budget.

A difference within the noise (its interval includes none) is no failure; an absolute bound that is exceeded is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.study import schema, toml
from scotfree.study.analysis import bootstrap
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.pattern import matches
from scotfree.study.plan.price import Resampled
from scotfree.study.trouble import StudyError

# Above any time or share: what is more is no bound.
_BOUND_MAX: Final = 1e18
PERCENTILES: Final = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Budget:
    """What methods whose names match may become; None: anything."""

    method: str = "*"
    # Growth of B over A, as a share: 0.1 is a tenth more. Of the tax share as a difference: 0.02 is 2 points.
    p50_growth_max: float | None = None
    p95_growth_max: float | None = None
    p99_growth_max: float | None = None
    tax_share_growth_max: float | None = None
    # Bounds of B by itself.
    p50_ns_max: float | None = None
    p95_ns_max: float | None = None
    p99_ns_max: float | None = None
    tax_share_max: float | None = None
    # Of methods with fewer calls on either side nothing is judged.
    samples_min: int = schema.SAMPLES_MIN


@dataclass(frozen=True)
class Change:
    """One measure of a method in A and in B; ns, or a share for `tax_share`."""

    measure: str
    a: float
    b: float
    # Growth as a share of A (tax_share: difference), with its 95 % interval.
    growth: float
    low: float
    high: float
    # What of the budget it breaks.
    breaks: str | None = None


@dataclass(frozen=True)
class Compared:
    """A method in both."""

    service: str
    method: str
    samples_a: int
    samples_b: int
    changes: tuple[Change, ...]
    # Whether something was asked of it: there is a budget for it, and samples enough.
    is_judged: bool = False

    @property
    def leaves(self) -> bool:
        """Whether it leaves its budget."""
        return any(one.breaks for one in self.changes)


def budgets(path: Path) -> list[Budget]:
    """Those of a TOML file, `[[budget]]` each; the first whose `method` matches is a method's."""
    text = toml.read(path, "read the budget", "see docs/plan.md for the form")
    entries = text.get("budget")
    is_list = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if not is_list or not entries or set(text) != {"budget"}:
        raise StudyError(f"read the budget {path}: it has no [[budget]] alone", "see docs/plan.md for the form")
    return [_budget(path, entry) for entry in entries]


def _budget(path: Path, entry: dict[str, Any]) -> Budget:
    known = {field.name for field in fields(Budget)}
    unknown = sorted(set(entry) - known)
    if unknown:
        raise StudyError(f"read the budget {path}: there is no {unknown[0]}", f"use {', '.join(sorted(known))}")
    for key, value in entry.items():
        if not _is_right(key, value):
            raise StudyError(
                f"read the budget {path}: {key} = {value!r}",
                "give a pattern as text, bounds as numbers; only a growth may be below 0",
            )
    return Budget(**entry)


def _is_right(key: str, value: object) -> bool:
    if key == "method":
        return isinstance(value, str)
    # Times, shares and counts below 0 are none; what has to become less is a growth below it.
    least = -_BOUND_MAX if key.endswith("_growth_max") else 0
    # Whole numbers of TOML have no end.
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= _BOUND_MAX


def budget_of(service: str, method: str, all_: Sequence[Budget]) -> Budget | None:
    """The first whose pattern matches."""
    return next((one for one in all_ if matches(one.method, service, method)), None)


def compare(a: Calls, b: Calls, budget: Budget | None) -> Compared:
    """A method in both data sets, judged if there is a budget for it and samples enough."""
    judge = budget if budget and min(len(a), len(b)) >= budget.samples_min else None
    changes = tuple(_judged(one, judge) for one in _changes(a, b))
    return Compared(a.service, a.method, len(a), len(b), changes, _asks(judge, changes))


def _changes(a: Calls, b: Calls) -> Iterator[Change]:
    before, after = (Resampled(one.total, one.weight, one.group) for one in (a, b))
    for name, p in PERCENTILES.items():
        was, now = before.quantile(p), after.quantile(p)
        # The two are independent: every resample of one beside every of the other.
        pairs = np.divide.outer(after.resamples(p), np.maximum(before.resamples(p), 1.0)) - 1
        yield _change(name, was, now, now / max(was, 1.0) - 1, pairs)
    taxes = [_tax(one) for one in (a, b)]
    if all(len(resamples) for _, resamples in taxes):
        (was, drawn_a), (now, drawn_b) = taxes
        yield _change("tax_share", was, now, now - was, np.subtract.outer(drawn_b, drawn_a))


def _change(name: str, was: float, now: float, growth: float, pairs: Floats) -> Change:
    low, high = np.quantile(pairs, [bootstrap.LOW, bootstrap.HIGH])
    return Change(name, was, now, growth, float(low), float(high))


def _tax(calls: Calls) -> tuple[float, Floats]:
    """The tax's share of the time of those calls whose application is known (R5), and its resamples."""
    app = calls.ns("server_app")
    known = ~np.isnan(app)
    if not known.any():
        return float("nan"), np.array([])
    groups, weights = calls.group[known], calls.weight[known]
    tax, total = (calls.total - app)[known] * weights, calls.total[known] * weights
    parts, wholes = (np.bincount(groups, each, bootstrap.GROUPS).astype(np.float64) for each in (tax, total))
    drawn = bootstrap.ratios(parts[None], wholes[None])[0]
    return float(tax.sum() / max(total.sum(), 1.0)), drawn[~np.isnan(drawn)]


def _asks(budget: Budget | None, changes: Sequence[Change]) -> bool:
    return budget is not None and any(bound is not None for one in changes for bound in _bounds(one, budget)[1:])


def _bounds(change: Change, budget: Budget) -> tuple[str, float | None, float | None]:
    """Of a measure: the name of its bound, the bound, and that of its growth."""
    name = "tax_share_max" if change.measure == "tax_share" else f"{change.measure}_ns_max"
    return name, getattr(budget, name), getattr(budget, f"{change.measure}_growth_max")


def _judged(change: Change, budget: Budget | None) -> Change:
    broken = None if budget is None else _broken(change, budget)
    return Change(change.measure, change.a, change.b, change.growth, change.low, change.high, broken)


def _broken(change: Change, budget: Budget) -> str | None:
    bound_name, bound, growth = _bounds(change, budget)
    if bound is not None and change.b > bound:
        return f"{bound_name} = {bound:g}"
    if growth is not None and change.growth > growth and change.low > 0:
        return f"{change.measure}_growth_max = {growth:g}"
    return None
