"""Every remedy on every method: what is forecast, what is refused and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from scotfree.study.analysis.study import Study
from scotfree.study.figures.words import called, counted
from scotfree.study.plan import registry
from scotfree.study.plan.calls import Calls, methods
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Price, Refused, by_savings, price
from scotfree.study.plan.remedies import REMEDIES, Remedy
from scotfree.study.trouble import StudyError


@dataclass(frozen=True)
class Refusal:
    """A remedy that is not priced for a method."""

    remedy: str
    service: str
    method: str
    reason: str


@dataclass(frozen=True)
class Plan:
    """All prices, what saves most first, and all refusals."""

    prices: list[Price]
    refusals: list[Refusal]
    # The methods that were looked at, and their share of all time.
    methods: int
    time_share: float
    # What is said of the remedies that the registry has and nobody forecasts, by name.
    unpriced: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """All of it, plain."""
        return {
            "methods": self.methods,
            "time_share": self.time_share,
            "prices": [one.to_json() for one in self.prices],
            "refusals": [asdict(one) for one in self.refusals],
            "unpriced": dict(self.unpriced),
        }


def make(
    study: Study,
    context: Context,
    limit: int,
    remedies: Sequence[Remedy] = REMEDIES,
    progress: Callable[[str], None] = lambda _: None,
) -> Plan:
    """Prices each remedy on each of the methods that take most time; `progress` is told what is priced."""
    prices, refusals, share, count = [], [], 0.0, 0
    for calls in methods(study, limit):
        share, count = share + calls.time_share, count + 1
        for remedy in remedies:
            progress(f"method {count} of at most {limit}: {remedy.NAME} on {called(calls.service, calls.method)}")
            found = _one(remedy, calls, context)
            if isinstance(found, Price):
                prices.append(found)
            else:
                refusals.append(found)
    if count == 0:
        raise StudyError(
            "plan: no method has 100 successful calls whose total is known", "give more traces, with client spans"
        )
    return Plan(by_savings(prices), refusals, count, share, _unpriced())


def _unpriced() -> dict[str, str]:
    forecast = {remedy.NAME for remedy in REMEDIES}
    return {name: entry.about for name, entry in registry.entries().items() if name not in forecast}


def _one(remedy: Remedy, calls: Calls, context: Context) -> Price | Refusal:
    effect = remedy.forecast(calls, context)
    if isinstance(effect, Refused):
        return Refusal(remedy.NAME, calls.service, calls.method, effect.reason)
    wrong = sum(int((~np.isfinite(totals)).sum()) for totals in effect.totals)
    if wrong:
        # A number that is none would be printed as a forecast.
        reason = f"for {counted(wrong, 'call')} its forecast is no number, which is a fault of this program"
        return Refusal(remedy.NAME, calls.service, calls.method, reason)
    return price(remedy.NAME, remedy.IS_OURS, calls, effect)
