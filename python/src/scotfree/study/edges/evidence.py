"""What the calls of a scope say together: how much slower, by what chance, and whether that matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np

from scotfree.study.edges import chance, scopes
from scotfree.study.edges.chance import Stratum, Usual, usual
from scotfree.study.edges.scopes import ALL, Both, Mask, Scope, Where
from scotfree.study.edges.times import NS_MIN

# Calls on either side from which on anything is said of them.
CALLS_MIN: Final = 5
# At most so many of all comparisons of data that differs in nothing have a finding.
ALPHA: Final = 0.001
# Differences below are none to act on, however sure.
GROWTH_MIN: Final = 0.10
ERRORS_MIN: Final = 0.001
# By itself, for what has been found in company.
NOMINAL: Final = 0.05
# Logarithms are not asked of calls that ranks see no sign of: of five beside five one may lie on the wrong side.
_RANKS_MAX: Final = 0.15


class Part(Enum):
    """Of a call: what passes outside its handler, the handler's own time, whether it failed."""

    OUTSIDE = "outside"
    HANDLER = "handler"
    ERRORS = "errors"
    # Failed though no call below it did.
    ORIGIN = "own errors"

    @property
    def is_share(self) -> bool:
        """Whether it is counted and not timed."""
        return self in (Part.ERRORS, Part.ORIGIN)


# Of edges, what has been explained already.
Taken = Mapping[int, Sequence[Where]]


@dataclass(frozen=True)
class Summary:
    """A scope's calls, A beside B."""

    strata: tuple[Stratum, ...]
    # In standard deviations: above 0 where B is worse.
    z: float
    p: float
    is_material: bool

    @property
    def calls_a(self) -> int:
        """Of A."""
        return sum(one.calls_a for one in self.strata)

    @property
    def calls_b(self) -> int:
        """Of B."""
        return sum(one.calls_b for one in self.strata)

    @property
    def a(self) -> float:
        """The medians (shares) of A, weighted as B calls."""
        return sum(one.a * one.calls_b for one in self.strata) / self.calls_b

    @property
    def b(self) -> float:
        """The same of B."""
        return sum(one.b * one.calls_b for one in self.strata) / self.calls_b


@dataclass
class Evidence:
    """All that is known of one part of all edges."""

    part: Part
    known: Mapping[int, Both]
    # A chance above which ranks cannot be told from chance however far apart the calls are; see `p`.
    p_needed: float = 0.0
    # Of times, ns: see `is_material`.
    least_ns: float = NS_MIN
    usual: Usual = field(init=False)
    # Strata that were asked for, without anything taken.
    _whole: dict[tuple[int, Where], Stratum | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """What is usual of an edge is looked up in all of them."""
        strata = [] if self.part.is_share else [self._stratum(place, ALL, ()) for place in self.known]
        self.usual = usual([one for one in strata if one])

    def summary(self, scope: Scope, taken: Taken, besides: Scope | None = None) -> Summary | None:
        """Of a scope without what is taken, and without what is in `besides`; None of too few calls."""
        strata = []
        for place, where in scope.edges.items():
            gone = [*taken.get(place, ())]
            if besides and place in besides.edges:
                gone.append(besides.edges[place])
            if found := self._stratum(place, where, gone):
                strata.append(found)
        if min(sum(one.calls_a for one in strata), sum(one.calls_b for one in strata)) < CALLS_MIN:
            return None
        p = chance.errors_p(_failed(strata)) if self.part.is_share else self._time_p(scope, strata)
        return Summary(tuple(strata), chance.rank_z(strata), p, self._is_material(strata))

    def _stratum(self, place: int, where: Where, gone: Sequence[Where]) -> Stratum | None:
        if gone:
            return self._counted(place, where, gone)
        if (place, where) not in self._whole:
            self._whole[place, where] = self._counted(place, where, ())
        return self._whole[place, where]

    def _counted(self, place: int, where: Where, gone: Sequence[Where]) -> Stratum | None:
        both = self.known.get(place)
        if both is None:
            return None
        in_a, in_b = both.masks(where)
        for one in gone:
            in_a, in_b = in_a & ~_seen(both, one), in_b & ~both.b.at(one)
        a, b = both.a.values[in_a], both.b.values[in_b]
        if not len(a) or not len(b):
            return None
        return chance.failing(a, b) if self.part.is_share else chance.stratum(a, b)

    def p_min(self, scope: Scope, summary: Summary) -> float:
        """The least chance that a scope of so many calls (failed calls) could have."""
        if self.part.is_share:
            return chance.errors_p_min(_failed(summary.strata))
        return 0.0 if _is_enough(scope, summary.strata) else chance.normal(chance.rank_z_max(summary.strata))

    def _time_p(self, scope: Scope, strata: Sequence[Stratum]) -> float:
        """By ranks; where even calls without any overlap are too few for that, of whole edges by logarithms.

        Which of both is a matter of how many calls there are, not of what they say.
        """
        by_ranks = chance.normal(chance.rank_z(strata))
        is_enough = chance.normal(chance.rank_z_max(strata)) <= self.p_needed
        if is_enough or by_ranks > _RANKS_MAX or not _is_enough(scope, strata):
            return by_ranks
        return chance.log_p(strata, self.usual)

    def is_material(self, a: float, b: float, way: int) -> bool:
        """Whether a change that way is enough to matter."""
        least = ERRORS_MIN if self.part.is_share else self.least_ns
        return (b - a) * way >= max(GROWTH_MIN * a, least)

    def _is_material(self, strata: Sequence[Stratum]) -> bool:
        """Whether at least half of the calls are of edges that changed enough to matter, all the same way."""
        way = 1 if chance.rank_z(strata) > 0 else -1
        changed = sum(one.calls_b for one in strata if self.is_material(one.a, one.b, way))
        return 2 * changed >= sum(one.calls_b for one in strata)


def _failed(strata: Sequence[Stratum]) -> list[chance.Failed]:
    """Edges without a failed call say nothing of their chance."""
    return [
        (round(one.a * one.calls_a), one.calls_a, round(one.b * one.calls_b), one.calls_b)
        for one in strata
        if one.a + one.b > 0
    ]


def _is_enough(scope: Scope, strata: Sequence[Stratum]) -> bool:
    """Whether logarithms are asked: of a machine's share of an edge's calls only where it is not a few."""
    calls = min(sum(one.calls_a for one in strata), sum(one.calls_b for one in strata))
    return calls >= scopes.MACHINE_CALLS_MIN or all(where == ALL for where in scope.edges.values())


def _seen(both: Both, where: Where) -> Mask:
    """Calls of A that go with what is taken of B: none, where A has not that machine."""
    return np.ones(len(both.a), np.bool_) if where == ALL else both.a.at(where)
