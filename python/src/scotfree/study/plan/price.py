"""From what a forecast makes of each call to its price: percentiles now and then, each with an interval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np

from scotfree.study import schema
from scotfree.study.analysis import bootstrap
from scotfree.study.plan.calls import Calls, Floats, Integers

PERCENTILES: Final = (0.50, 0.95, 0.99)
# Of all time: with less nothing is saved.
_SAVED_MIN: Final = 0.005
# Of a percentile: who loses less does not see it, and `scot study compare` calls it no difference.
_HARM_MIN: Final = 0.10


@dataclass(frozen=True)
class Effect:
    """What a remedy would make of a method's calls."""

    # The new total of each call, ns: several draws where the forecast itself is uncertain, all as likely.
    totals: tuple[Floats, ...]
    # What must be said beside the numbers: assumptions, and why nothing is gained.
    notes: tuple[str, ...] = ()
    # Share of the method's cost that is saved beside the time of its calls (processor time of hedges, say).
    saved_beside: float = 0.0


@dataclass(frozen=True)
class Refused:
    """No forecast for a method, and why."""

    reason: str


@dataclass(frozen=True)
class Percentile:
    """One percentile of a method's total, now and as forecast; 95 % intervals; ns."""

    p: float
    now_ns: float
    forecast_ns: float
    low_ns: float
    high_ns: float
    gain_low_ns: float
    gain_high_ns: float

    @property
    def gain_ns(self) -> float:
        """How much sooner; negative if later."""
        return self.now_ns - self.forecast_ns

    @property
    def pays(self) -> bool:
        """Whether the interval of the gain excludes none."""
        return self.gain_low_ns > 0

    @property
    def loses(self) -> bool:
        """Whether the interval of the gain excludes that it is no later."""
        return self.gain_high_ns < 0

    @property
    def harms(self) -> bool:
        """Whether it loses, and so much that it is seen."""
        return self.loses and self.growth >= 1 + _HARM_MIN

    @property
    def growth(self) -> float:
        """The forecast over what is now."""
        return self.forecast_ns / max(self.now_ns, 1.0)


@dataclass(frozen=True)
class Price:
    """A remedy on a method."""

    remedy: str
    is_ours: bool
    service: str
    method: str
    calls: int
    # Of the time of all successful calls: the method's, and what of it would be saved.
    time_share: float
    saved_share: float
    percentiles: tuple[Percentile, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def pays(self) -> bool:
        """Whether it gains at any percentile; what only moves time from most calls to the tail does not pay."""
        is_moved = any(one.loses for one in self.percentiles) and self.saved_share < _SAVED_MIN
        return any(one.pays for one in self.percentiles) and not is_moved

    @property
    def harms(self) -> bool:
        """Whether it does harm at any percentile."""
        return any(one.harms for one in self.percentiles)

    def at(self, p: float) -> Percentile:
        """One of its percentiles."""
        return next(one for one in self.percentiles if one.p == p)

    def to_json(self) -> dict[str, Any]:
        """All of it, plain."""
        found = asdict(self)
        for row, one in zip(found["percentiles"], self.percentiles, strict=True):
            row |= {"gain_ns": one.gain_ns, "pays": one.pays, "harms": one.harms}
        return found | {"pays": self.pays, "harms": self.harms}


def price(remedy: str, is_ours: bool, calls: Calls, effect: Effect) -> Price:
    """What the effect is worth on these calls."""
    now = Resampled(calls.total, calls.weight, calls.group)
    then = [Resampled(totals, calls.weight, calls.group) for totals in effect.totals]
    rows = tuple(_percentile(p, now, then) for p in PERCENTILES)
    after = float(np.mean([np.dot(totals, calls.weight) for totals in effect.totals]))
    saved = 1 - after / max(float(np.dot(calls.total, calls.weight)), 1.0)
    return Price(
        remedy,
        is_ours,
        calls.service,
        calls.method,
        len(calls),
        calls.time_share,
        saved * calls.time_share + effect.saved_beside * calls.time_share,
        rows,
        effect.notes,
    )


def _percentile(p: float, now: Resampled, then: Sequence[Resampled]) -> Percentile:
    value = float(np.median([one.quantile(p) for one in then]))
    before = now.resamples(p)
    after = np.concatenate([one.resamples(p) for one in then])
    gains = np.tile(before, len(then)) - after
    low, high = np.quantile(after, [bootstrap.LOW, bootstrap.HIGH])
    gain_low, gain_high = np.quantile(gains, [bootstrap.LOW, bootstrap.HIGH])
    return Percentile(p, now.quantile(p), value, float(low), float(high), float(gain_low), float(gain_high))


class Resampled:
    """Values with weights; their quantiles by nearest rank, of all and of resamples of whole traces."""

    def __init__(self, values: Floats, weights: Floats, groups: Integers) -> None:
        order = np.argsort(values, kind="stable")
        self._values, self._weights, self._groups = values[order], weights[order], groups[order]

    def quantile(self, p: float) -> float:
        """The smallest value whose cumulative weight reaches p of all (R6)."""
        return self._reached(np.cumsum(self._weights), p)

    def resamples(self, p: float) -> Floats:
        """The quantile of each resample, the same resamples whatever the values."""
        sums = (self._sums(counts) for counts in bootstrap.draws())
        return np.array([self._reached(one, p) for one in sums if one[-1] > 0])

    def _sums(self, counts: Floats) -> Floats:
        return np.cumsum(self._weights * counts[self._groups])

    def _reached(self, sums: Floats, p: float) -> float:
        place = int(np.searchsorted(sums, p * sums[-1] * (1 - schema.ROUNDING)))
        return float(self._values[min(place, len(self._values) - 1)])


def by_savings(prices: Iterable[Price]) -> list[Price]:
    """What saves most of all time first; what pays before what does not."""
    return sorted(prices, key=lambda one: (not one.pays, -one.saved_share, one.remedy, one.service, one.method))
