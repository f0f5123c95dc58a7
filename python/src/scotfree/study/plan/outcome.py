"""A forecast beside what came of it: the percentiles of the same methods' calls once the remedy was applied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from scotfree.study.plan.calls import Calls, Name
from scotfree.study.plan.forecasts import Plan
from scotfree.study.plan.price import PERCENTILES, Price, Resampled
from scotfree.study.trouble import StudyError


@dataclass(frozen=True)
class Outcome:
    """One percentile of a method: before, as forecast, and as it came; ns."""

    remedy: str
    service: str
    method: str
    p: float
    before_ns: float
    forecast_ns: float
    low_ns: float
    high_ns: float
    measured_ns: float
    measured_calls: int

    @property
    def error(self) -> float:
        """By which share of what came the forecast is too high; negative if it is too low."""
        return self.forecast_ns / max(self.measured_ns, 1.0) - 1

    @property
    def is_within(self) -> bool:
        """Whether what came lies in the forecast's interval."""
        return self.low_ns <= self.measured_ns <= self.high_ns

    def to_json(self) -> dict[str, Any]:
        """All of it, plain."""
        return asdict(self) | {"error": self.error, "is_within": self.is_within}


def outcomes(plan: Plan, remedy: str, measured: Sequence[Calls]) -> list[Outcome]:
    """Of each method that has a forecast of this remedy and calls with it, the most time first."""
    prices = [price for price in plan.prices if price.remedy == remedy]
    if not prices:
        reasons = sorted({one.reason for one in plan.refusals if one.remedy == remedy})
        why = "; ".join(reasons) or "no such remedy"
        raise StudyError(
            f"put the forecast of {remedy} beside what came: there is none: {why}",
            "name another one with --applied, or give what is missing",
        )
    found = [
        outcome
        for price in prices
        if (calls := _of(price, measured)) is not None
        for outcome in _outcomes(price, calls)
    ]
    if not found:
        names = ", ".join(sorted({f"{one.service} {one.method}" for one in measured}))
        raise StudyError(
            f"put the forecast of {remedy} beside what came: no method with a forecast has calls there, which are "
            f"of {names or 'no method with 100 successful calls'}",
            "give traces of the same methods, recorded with the remedy",
        )
    return found


def _of(price: Price, measured: Iterable[Calls]) -> Calls | None:
    """The same method's calls; of a service that is called otherwise since, if only one has such a method."""
    same = [calls for calls in measured if calls.method == price.method]
    exact = [calls for calls in same if _name(calls) == (price.service, price.method)]
    chosen = exact or same
    return chosen[0] if len(chosen) == 1 else None


def _name(calls: Calls) -> Name:
    return calls.service, calls.method


def _outcomes(price: Price, calls: Calls) -> list[Outcome]:
    came = Resampled(calls.total, calls.weight, calls.group)
    return [
        Outcome(
            price.remedy,
            price.service,
            price.method,
            p,
            price.at(p).now_ns,
            price.at(p).forecast_ns,
            price.at(p).low_ns,
            price.at(p).high_ns,
            came.quantile(p),
            len(calls),
        )
        for p in PERCENTILES
    ]
