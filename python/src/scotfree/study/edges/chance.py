"""How likely a difference is by chance: ranks, logarithms of few calls, failed calls; order statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

# Around the middle of what is compared: differences far below it are none, also of times next to nothing.
OFFSET_NS: Final = 50_000.0
# Above it the normal distribution is Student's to six digits of what is asked here.
_DEGREES_MAX: Final = 500
# Of failed calls: above it the exact distribution is as good as normal.
_ERRORS_MAX: Final = 4_000
LEVEL: Final = 0.95


def normal(z: float) -> float:
    """The chance of so much or more, to either side."""
    return math.erfc(abs(z) / math.sqrt(2))


def student(t: float, degrees: float) -> float:
    """The same of Student's distribution; degrees are cut to whole ones, which errs to the safe side."""
    whole = int(degrees)
    if whole < 1:
        return 1.0
    if whole > _DEGREES_MAX:
        return normal(t)
    angle = math.atan(abs(t) / math.sqrt(whole))
    return min(1.0, max(0.0, 1.0 - _inside(angle, whole)))


def _inside(angle: float, degrees: int) -> float:
    """The chance of less than that, as a finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    sine, square = math.sin(angle), math.cos(angle) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(angle) if is_odd else 1.0
    series = term if degrees > 1 else 0.0
    for k in range(2 if is_odd else 1, degrees - 1, 2):
        term *= square * k / (k + 1)
        series += term
    return 2 / math.pi * (angle + sine * series) if is_odd else sine * series


@dataclass(frozen=True)
class Stratum:
    """One edge's share of the evidence: calls of A beside calls of B."""

    calls_a: int
    calls_b: int
    # How much more often a call of B is above one of A than by chance (Mann and Whitney's U less its mean).
    excess: float
    variance: float
    # The difference of the mean logarithms, their ends cut off; the variance of one call's; by how many calls that
    # is known, and how many are left when the ends are cut off.
    shift: float
    spread: float
    degrees: int
    cut_a: int
    cut_b: int
    # Medians; of failed calls their shares.
    a: float
    b: float

    @property
    def weight(self) -> float:
        """What lets strata of all sizes say as much as they know (van Elteren)."""
        return 1 / (self.calls_a + self.calls_b + 1)


def stratum(a: Floats, b: Floats) -> Stratum:
    """Times of one edge, in ns."""
    excess, variance = ranked(a, b)
    (mean_a, squares_a, cut_a), (mean_b, squares_b, cut_b) = (
        _cut(np.log(np.maximum(one, 0.0) + OFFSET_NS)) for one in (a, b)
    )
    degrees = cut_a + cut_b - 2
    spread = (squares_a + squares_b) / max(degrees, 1)
    logs = (mean_b - mean_a, spread, degrees, cut_a, cut_b)
    return Stratum(len(a), len(b), excess, variance, *logs, median(a), median(b))


def _cut(logs: Floats) -> tuple[float, float, int]:
    """The mean without a fifth at each end, the squares around it with the ends drawn in, and how many are left.

    Yuen's: of five calls one may be an outlier.
    """
    ordered = np.sort(logs)
    ends = len(ordered) // 5
    core = ordered[ends : len(ordered) - ends]
    drawn_in = np.clip(ordered, core[0], core[-1])
    return float(core.mean()), float(((drawn_in - drawn_in.mean()) ** 2).sum()), len(core)


def failing(a: Floats, b: Floats) -> Stratum:
    """Of calls of one edge whether each failed, 0 or 1."""
    excess, variance = ranked(a, b) if a.any() or b.any() else (0.0, 0.0)
    return Stratum(len(a), len(b), excess, variance, 0.0, 0.0, 0, 0, 0, float(a.mean()), float(b.mean()))


def ranked(a: Floats, b: Floats) -> tuple[float, float]:
    """Mann and Whitney's U of B less its mean, and its variance, which knows of ties."""
    _, inverse, counts = np.unique(np.concatenate([a, b]), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    n, m, whole = len(a), len(b), len(a) + len(b)
    above = float(ranks[inverse[n:]].sum()) - m * (m + 1) / 2
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = n * m / 12 * (whole + 1 - ties / max(whole * (whole - 1), 1))
    return above - n * m / 2, variance


def rank_z(strata: Sequence[Stratum]) -> float:
    """All strata together, in standard deviations (van Elteren); above 0 where B takes longer."""
    above = sum(one.weight * one.excess for one in strata)
    variance = sum(one.weight**2 * one.variance for one in strata)
    return above / math.sqrt(variance) if variance > 0 else 0.0


def rank_z_max(strata: Sequence[Stratum]) -> float:
    """The most that ranks of so many calls can say: every call of B above every call of A."""
    above = sum(one.weight * one.calls_a * one.calls_b / 2 for one in strata)
    of = (one.weight**2 * one.calls_a * one.calls_b * (one.calls_a + one.calls_b + 1) / 12 for one in strata)
    return above / math.sqrt(sum(of) or 1.0)


@dataclass(frozen=True)
class Usual:
    """How far apart calls of one edge lie, and by how many calls more than its own that is known of an edge."""

    spread: float = 0.0
    degrees: float = 0.0


# More is not lent to an edge.
_LENT_MAX: Final = 24.0


def usual(strata: Sequence[Stratum]) -> Usual:
    """Of all edges: the more alike they are, the more each borrows of the others (Smyth)."""
    known = [one for one in strata if one.degrees >= 4 and one.spread > 0]
    if len(known) < 4:
        return Usual()
    degrees = np.array([one.degrees for one in known], np.float64)
    spreads = np.array([one.spread for one in known])
    # The median of a sum of squares is below its mean.
    middle = float(np.median(spreads / (1 - 2 / (9 * degrees)) ** 3))
    # What differs beyond chance: the variance of a logarithm of a variance is the trigamma function.
    half = degrees / 2
    by_chance = float((1 / half + 1 / (2 * half**2) + 1 / (6 * half**3)).mean())
    # A quarter more, as ends that are drawn in make it (5 to 40 calls of a normal distribution).
    differ = float(np.log(spreads).var(ddof=1))
    # What a few edges differ in by chance does not make them different: one standard error less.
    beyond = differ * (1 - math.sqrt(2 / (len(known) - 1))) - 1.25 * by_chance
    return Usual(middle, _LENT_MAX if beyond <= 0 else min(2 / beyond + 1, _LENT_MAX))


def log_p(strata: Sequence[Stratum], of: Usual) -> float:
    """The chance by Student's test of the mean logarithms: what few calls far apart say and ranks cannot."""
    above = variance = squares = 0.0
    for one in strata:
        if one.degrees < 1:
            continue
        weight = one.cut_a * one.cut_b / (one.cut_a + one.cut_b)
        part = weight * _spread(one, of)
        above += weight * one.shift
        variance += part
        squares += part**2 / (one.degrees + of.degrees)
    return student(above / math.sqrt(variance), variance**2 / squares) if variance > 0 else 1.0


def _spread(one: Stratum, of: Usual) -> float:
    """Calls that lie close together by chance are taken for as far apart as those of the middle edge."""
    lent = (of.degrees * of.spread + one.degrees * one.spread) / (of.degrees + one.degrees)
    return max(one.spread, lent)


# A greater one is none that anybody waits for.
_FACTOR_MAX: Final = 1_000.0
# Which part of a normal distribution's variance is left when a fifth is drawn in at each end, as `_cut` counts it.
_DRAWN_IN: Final = 0.7


def told_from(one: Stratum, of: Usual, p: float) -> float:
    """About how many times as long one edge's calls must take so that this is called no chance.

    By the test that so many calls are asked by; of logarithms as of a normal distribution.
    """
    if one.degrees < 1 or one.a <= 0:
        return _FACTOR_MAX
    exponent = min(_ranks_need(one, of, p) or _logs_need(one, of, p), math.log(_FACTOR_MAX))
    return min(1 + (math.exp(exponent) - 1) * (one.a + OFFSET_NS) / one.a, _FACTOR_MAX)


def _ranks_need(one: Stratum, of: Usual, p: float) -> float:
    """The difference of mean logarithms that ranks need; 0 where they cannot tell, whatever it is."""
    asked, most = NormalDist().inv_cdf(1 - p / 2), rank_z_max([one])
    if asked >= most:
        return 0.0
    above = (1 + asked / most) / 2
    return math.sqrt(2 * _spread(one, of) / _DRAWN_IN) * NormalDist().inv_cdf(above)


def _logs_need(one: Stratum, of: Usual, p: float) -> float:
    error = math.sqrt(_spread(one, of) * (1 / one.cut_a + 1 / one.cut_b))
    return _student_needed(p, int(one.degrees + of.degrees)) * error


@cache
def _student_needed(p: float, degrees: int) -> float:
    """How far from the middle Student's distribution has so little left."""
    low, high = 0.0, 1.0
    while student(high, degrees) > p and high < 1e9:
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, degrees) > p else (low, middle)
    return high


Failed = tuple[int, int, int, int]


def errors_p(strata: Sequence[Failed]) -> float:
    """The exact chance that so many of all failed calls are of B; strata of (failed, calls) of A and of B."""
    if sum(a + b for a, _, b, _ in strata) > _ERRORS_MAX:
        return normal(_errors_z(strata))
    least, chance = _of_b(strata)
    place = sum(b for _, _, b, _ in strata) - least
    return float(min(1.0, 2 * min(chance[place:].sum(), chance[: place + 1].sum())))


def errors_p_min(strata: Sequence[Failed]) -> float:
    """The least chance that so many failed calls could have: that of all of them on one side."""
    if sum(a + b for a, _, b, _ in strata) > _ERRORS_MAX:
        return 0.0
    _, chance = _of_b(strata)
    return float(min(1.0, 2 * min(chance[0], chance[-1])))


def _of_b(strata: Sequence[Failed]) -> tuple[int, Floats]:
    """The least number of failed calls that may be B's, and the chance of each from there on."""
    least, chance = 0, np.ones(1)
    for errors_a, calls_a, errors_b, calls_b in strata:
        low, of_one = _hypergeometric(errors_a + errors_b, calls_a, calls_b)
        least, chance = least + low, np.convolve(chance, of_one)
    return least, chance


def _errors_z(strata: Sequence[Failed]) -> float:
    above = variance = 0.0
    for errors_a, calls_a, errors_b, calls_b in strata:
        errors, calls = errors_a + errors_b, calls_a + calls_b
        share = errors / calls
        above += errors_b - errors * calls_b / calls
        variance += calls_a * calls_b / max(calls - 1, 1) * share * (1 - share)
    return above / math.sqrt(variance) if variance > 0 else 0.0


def _hypergeometric(errors: int, calls_a: int, calls_b: int) -> tuple[int, Floats]:
    """The same of one edge."""
    low, high = max(0, errors - calls_a), min(errors, calls_b)
    of_b = np.arange(low, high + 1)
    logs = _choose(calls_b, of_b) + _choose(calls_a, errors - of_b)
    chance = np.exp(logs - logs.max())
    return low, chance / chance.sum()


def _choose(whole: int, some: Any) -> Floats:
    logs = _log_factorials(1 << max(whole, 1).bit_length())
    chosen: Floats = logs[whole] - logs[some] - logs[whole - some]
    return chosen


@cache
def _log_factorials(up_to: int) -> Floats:
    return np.concatenate([np.zeros(1), np.cumsum(np.log(np.arange(1, up_to + 1)))])


def needed(least: Sequence[float], alpha: float) -> float:
    """The chance that the first finding may have at most, given the least that each comparison could have.

    What could not be a finding whatever the calls had said is not counted (Tarone).
    """
    ordered = np.sort(np.array(least))
    for asked in range(1, len(ordered) + 1):
        if np.searchsorted(ordered, alpha / asked, side="right") <= asked:
            return alpha / asked
    return alpha / max(len(ordered), 1)


def holm(chances: Sequence[float], alpha: float) -> float:
    """The greatest chance that is still a finding, if at most `alpha` of all comparisons may have a false one.

    Below 0 if none is.
    """
    accepted = -1.0
    for place, chance in enumerate(sorted(chances)):
        if chance > alpha / (len(chances) - place):
            break
        accepted = chance
    return accepted


def median(values: Floats) -> float:
    """By nearest rank, as all quantiles of the study."""
    return quantile(values, 0.5)


def quantile(values: Floats, p: float) -> float:
    """By nearest rank."""
    place = max(math.ceil(round(p * len(values), 9)), 1) - 1
    return float(np.partition(values, place)[place])


@dataclass(frozen=True)
class Interval:
    """A quantile between two order statistics, whatever the distribution; None where the calls do not reach."""

    value: float
    low: float | None
    high: float | None
    # The chance that it holds the true one: 0.95 or more, or what so few calls can give.
    level: float


def interval(values: Floats, p: float) -> Interval:
    """A quantile with its interval, by the binomial distribution of how many calls lie below it."""
    ordered = np.sort(values)
    low, high, level = _places(len(values), p)
    return Interval(
        quantile(values, p),
        float(ordered[low]) if low >= 0 else None,
        float(ordered[high]) if high < len(values) else None,
        level,
    )


@cache
def _places(count: int, p: float) -> tuple[int, int, float]:
    """Places of the two order statistics: -1 and `count` where there is none."""
    below = np.arange(count + 1)
    logs = _choose(count, below) + below * math.log(p) + (count - below) * math.log1p(-p)
    up_to = np.cumsum(np.exp(logs))
    tail = (1 - LEVEL) / 2
    low = int(np.searchsorted(up_to, tail, side="right")) - 1
    high = int(np.searchsorted(up_to, 1 - tail, side="left"))
    # So few calls that the least and the greatest are all that there is to say of their middle.
    if p == 0.5:
        low, high = max(low, 0), min(high, count - 1)
    under = up_to[low] if low >= 0 else 0.0
    return low, high, float(up_to[min(high, count)] - under)
