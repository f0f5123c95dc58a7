"""Two sides, edge by edge: verdicts, and what explains them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from scotfree.study.edges import beside, chance, read, scopes
from scotfree.study.edges.causes import Cause, causes
from scotfree.study.edges.chance import Interval
from scotfree.study.edges.evidence import CALLS_MIN, NOMINAL, Evidence, Part, Summary
from scotfree.study.edges.family import Family, weighed
from scotfree.study.edges.read import ANY, Calls, Count, Edge, Named, Read, Side
from scotfree.study.edges.scopes import Both, Kind
from scotfree.study.edges.times import NS_MIN
from scotfree.study.figures.words import counted

SLOWER, FASTER = "slower", "faster"
SAME: Final = "no difference that can be told"
# It can be told, and is less than a tenth or than what was said to matter.
SMALL: Final = "too little to matter"
NOT_COMPARABLE: Final = "not comparable"
MORE, FEWER = "more errors", "fewer errors"
# Below it a P95 is the slowest call.
_P95_CALLS_MIN: Final = 20
_KINDS: Final = {
    Part.OUTSIDE: scopes.OUTSIDE,
    Part.HANDLER: scopes.HANDLER,
    Part.ERRORS: (Kind.EDGE,),
    Part.ORIGIN: scopes.ERRORS,
}
# What is said of each edge, and by which findings it is in company.
_TOLD: Final = {Part.OUTSIDE: Part.OUTSIDE, Part.HANDLER: Part.HANDLER, Part.ERRORS: Part.ORIGIN}
# How edges are named until one is in both: as they are, whoever calls, whoever answers.
_NAMES: Final[tuple[tuple[str, Named], ...]] = (
    ("edge", lambda edge: edge),
    ("service and method", lambda edge: Edge(ANY, edge.server, edge.method)),
    ("method", lambda edge: Edge(ANY, ANY, edge.method)),
)


@dataclass(frozen=True)
class Told:
    """One part of one edge."""

    part: Part
    verdict: str
    # Why it is not comparable, or what was compared where it is not the usual.
    why: str = ""
    calls_a: int = 0
    calls_b: int = 0
    median_a: Interval | None = None
    median_b: Interval | None = None
    p95_a: Interval | None = None
    p95_b: Interval | None = None
    p: float | None = None
    # About how many times as long calls must take on one side so that it is told of so few; None of failed calls.
    told_from: float | None = None

    @property
    def is_worse(self) -> bool:
        """Whether a pipeline should know."""
        return self.verdict in (SLOWER, MORE)


@dataclass(frozen=True)
class Compared:
    """One edge in A and in B."""

    edge: Edge
    a: Count
    b: Count
    parts: tuple[Told, ...]
    # Where the data name them: calls of A and of B with each.
    client_machines: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    server_machines: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def is_worse(self) -> bool:
        """Whether any part is."""
        return any(one.is_worse for one in self.parts)


@dataclass(frozen=True)
class Comparison:
    """All of it."""

    # By what calls were put side by side: edge, service and method, or method.
    by: str
    edges: tuple[Compared, ...]
    only_in_a: Mapping[Edge, Count]
    only_in_b: Mapping[Edge, Count]
    causes: tuple[Cause, ...]
    machines: tuple[str, ...]
    evidence: Mapping[Part, Evidence]
    # Less than so many nanoseconds are none to act on.
    least_ns: float = NS_MIN

    @property
    def is_comparable(self) -> bool:
        """Whether anything could be told of anything."""
        return any(one.verdict != NOT_COMPARABLE for edge in self.edges for one in edge.parts)

    @property
    def is_worse(self) -> bool:
        """Whether anything is slower or fails more."""
        return bool(self.causes) or any(edge.is_worse for edge in self.edges)


def compare(a: Side, b: Side, *, least_ns: float = NS_MIN) -> Comparison:
    """Compares two sides that were counted; differences of less than that are too little to matter."""
    by, named, in_a, in_b = _common(a, b)
    both = [edge for edge in in_a if edge in in_b]
    data = [read.read(side, named, {edge: of[edge] for edge in both}) for side, of in ((a, in_a), (b, in_b))]
    machines = sorted({*data[0].machines, *data[1].machines})
    renumbered = [_renumbered(one, machines) for one in data]
    known, whys = beside.known(both, renumbered)
    asked = {part: scopes.scopes(both, known[part], machines, _KINDS[part]) for part in Part}
    family = weighed(known, asked, least_ns)
    found = [
        one for part in _TOLD.values() for one in causes(family.evidence[part], family.found[part], family.p_max)
    ]
    edges = [
        Compared(
            edge,
            in_a[edge],
            in_b[edge],
            tuple(_told(place, part, family, whys, found) for part in _TOLD),
            *_places([of[edge] for of in renumbered], machines),
        )
        for place, edge in enumerate(both)
    ]
    alone_a, alone_b = (
        {edge: count for edge, count in of.items() if edge not in other}
        for of, other in ((in_a, in_b), (in_b, in_a))
    )
    return Comparison(by, tuple(edges), alone_a, alone_b, tuple(found), tuple(machines), family.evidence, least_ns)


def _common(a: Side, b: Side) -> tuple[str, Named, dict[Edge, Count], dict[Edge, Count]]:
    """By the most exact names of which both sides have one."""
    tried = [(by, named, _renamed(a, named), _renamed(b, named)) for by, named in _NAMES]
    return next((one for one in tried if one[2].keys() & one[3].keys()), tried[0])


def _renamed(side: Side, named: Named) -> dict[Edge, Count]:
    found: dict[Edge, Count] = {}
    for edge, count in sorted(side.counts.items()):
        of = found.setdefault(named(edge), Count())
        of.calls += count.calls
        of.errors += count.errors
    return found


def _renumbered(data: Read, machines: Sequence[str]) -> dict[Edge, Calls]:
    """Machines by the numbers that both sides have."""
    number = {name: place for place, name in enumerate(machines)}
    of = np.array([*(number[name] for name in data.machines), scopes.UNNAMED], np.int32)
    return {
        edge: replace(calls, client_machine=of[calls.client_machine], server_machine=of[calls.server_machine])
        for edge, calls in data.calls.items()
    }


def _places(sides: Sequence[Calls], machines: Sequence[str]) -> Iterator[dict[str, tuple[int, int]]]:
    for name in ("client_machine", "server_machine"):
        counts = [np.bincount(getattr(of, name) + 1, minlength=len(machines) + 1)[1:] for of in sides]
        seen = np.flatnonzero(counts[0] + counts[1])
        yield {machines[place]: (int(counts[0][place]), int(counts[1][place])) for place in map(int, seen)}


def _told(
    place: int, part: Part, family: Family, whys: Mapping[tuple[Part, int], str], found: Sequence[Cause]
) -> Told:
    both, why = family.evidence[part].known.get(place), whys[part, place]
    summary = family.edge(part, place)
    if both is None or summary is None or min(len(both.a), len(both.b)) < CALLS_MIN:
        return _untold(part, both, why)
    in_company = any(one.part is _TOLD[part] and place in one.scope.edges for one in found)
    is_told = summary.p <= family.p_max or (in_company and summary.z > 0 and summary.p <= NOMINAL)
    verdict = _verdict(family.evidence[part], both, summary) if is_told else SAME
    if part.is_share:
        return Told(part, verdict, why, summary.calls_a, summary.calls_b, p=summary.p)
    return Told(
        part,
        verdict,
        why,
        summary.calls_a,
        summary.calls_b,
        median_a=chance.interval(both.a.values, 0.5),
        median_b=chance.interval(both.b.values, 0.5),
        p95_a=chance.interval(both.a.values, 0.95),
        p95_b=chance.interval(both.b.values, 0.95),
        p=summary.p,
        told_from=chance.told_from(summary.strata[0], family.evidence[part].usual, family.evidence[part].p_needed),
    )


def _untold(part: Part, both: Both | None, why: str) -> Told:
    calls_a, calls_b = (len(both.a), len(both.b)) if both else (0, 0)
    few = f"{counted(calls_a, 'call')} beside {calls_b:,}: too few to tell"
    return Told(part, NOT_COMPARABLE, why or few, calls_a, calls_b)


def _verdict(of: Evidence, both: Both, summary: Summary) -> str:
    """Worse or better, if by enough: in the median, or in the tail where there is one."""
    way = 1 if summary.z > 0 else -1
    pairs = [(summary.a, summary.b)]
    if not of.part.is_share and min(len(both.a), len(both.b)) >= _P95_CALLS_MIN:
        pairs.append((chance.quantile(both.a.values, 0.95), chance.quantile(both.b.values, 0.95)))
    if not any(of.is_material(a, b, way) for a, b in pairs):
        return SMALL
    words = (MORE, FEWER) if of.part.is_share else (SLOWER, FASTER)
    return words[0] if way > 0 else words[1]
