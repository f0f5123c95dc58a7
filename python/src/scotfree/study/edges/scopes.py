"""What may be at fault, and which calls it would slow: services, machines, links, methods, single edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np

from scotfree.study.edges.read import ANY, Edge

Mask = np.ndarray[Any, np.dtype[np.bool_]]
# Of a machine's calls in B.
MACHINE_CALLS_MIN: Final = 10
# And of those of one edge.
MACHINE_EDGE_CALLS_MIN: Final = 3
# A machine that no record names.
UNNAMED: Final = -1


class Kind(Enum):
    """What is at fault, and at which end; of two that are the same calls the first in this order is named."""

    CALLEE = "calls into a service"
    CALLER = "calls from a service"
    SERVER_MACHINE = "calls into a machine"
    CLIENT_MACHINE = "calls from a machine"
    METHOD = "a method of a service"
    LINK = "calls of one service to another"
    EDGE = "an edge"


class End(Enum):
    """At which end of a call a machine has to be."""

    ANYWHERE = "anywhere"
    SERVER = "server"
    CLIENT = "client"


class Where(NamedTuple):
    """Which of an edge's calls: all, or those with a machine at an end."""

    end: End = End.ANYWHERE
    machine: int = UNNAMED


ALL: Final = Where()


@dataclass(frozen=True)
class Values:
    """Something known of calls of one edge on one side, and their machines by number."""

    values: np.ndarray[Any, np.dtype[np.float64]]
    server: np.ndarray[Any, np.dtype[np.int32]]
    client: np.ndarray[Any, np.dtype[np.int32]]

    def __len__(self) -> int:
        return len(self.values)

    def at(self, where: Where) -> Mask:
        """Which of them."""
        if where.end is End.ANYWHERE:
            return np.ones(len(self), np.bool_)
        which: Mask = (self.server if where.end is End.SERVER else self.client) == where.machine
        return which


@dataclass(frozen=True)
class Both:
    """One edge in A and in B."""

    a: Values
    b: Values

    def masks(self, where: Where) -> tuple[Mask, Mask]:
        """Calls of A beside calls of B; a machine that A has not is beside all of A's."""
        in_a, in_b = self.a.at(where), self.b.at(where)
        return in_a if in_a.any() else np.ones(len(self.a), np.bool_), in_b


@dataclass(frozen=True)
class Scope:
    """Something that may be at fault."""

    kind: Kind
    # The service, machine, method's service, …; see `text`.
    names: tuple[str, ...]
    # By number of the edge.
    edges: Mapping[int, Where]

    def has(self, other: Scope) -> bool:
        """Whether all calls of the other one are of this one, and not all of this one are the other's."""
        return self.edges != other.edges and all(
            edge in self.edges and _has(self.edges[edge], where) for edge, where in other.edges.items()
        )


def _has(outer: Where, inner: Where) -> bool:
    return outer in (ALL, inner)


OUTSIDE: Final = tuple(kind for kind in Kind if kind is not Kind.METHOD)
HANDLER: Final = (Kind.CALLEE, Kind.SERVER_MACHINE, Kind.METHOD, Kind.EDGE)
ERRORS: Final = (
    Kind.CALLEE,
    Kind.CALLER,
    Kind.SERVER_MACHINE,
    Kind.CLIENT_MACHINE,
    Kind.METHOD,
    Kind.LINK,
    Kind.EDGE,
)


def scopes(
    edges: Sequence[Edge], known: Mapping[int, Both], machines: Sequence[str], kinds: Sequence[Kind]
) -> list[Scope]:
    """All of these kinds, in the order of kinds, none twice over the same calls; each edge is one or has one."""
    found: dict[frozenset[tuple[int, Where]], Scope] = {}
    for kind in kinds:
        for names, members in _grouped(kind, edges, known, machines).items():
            found.setdefault(frozenset(members.items()), Scope(kind, names, members))
    return list(found.values())


def _grouped(
    kind: Kind, edges: Sequence[Edge], known: Mapping[int, Both], machines: Sequence[str]
) -> dict[tuple[str, ...], dict[int, Where]]:
    groups: dict[tuple[str, ...], dict[int, Where]] = {}
    calls: Counter[tuple[str, ...]] = Counter()
    for place, both in known.items():
        for names, where in _of_edge(kind, edges[place], both, machines):
            groups.setdefault(names, {})[place] = where
            calls[names] += int(both.b.at(where).sum()) if kind in _MACHINES else 0
    # Nothing can be told of a machine with a few calls, and a large fleet has many.
    return {
        names: of for names, of in groups.items() if kind not in _MACHINES or calls[names] >= MACHINE_CALLS_MIN
    }


def _of_edge(
    kind: Kind, edge: Edge, both: Both, machines: Sequence[str]
) -> Iterator[tuple[tuple[str, ...], Where]]:
    if kind in _MACHINES:
        end = _MACHINES[kind]
        for machine in _machines(both.b, end):
            where = Where(end, machine)
            yield (machines[machine],), ALL if _is_all(both, where) else where
        return
    for names in _NAMES[kind](edge):
        if not {"", ANY} & set(names[: _NAMED[kind]]):
            yield names, ALL


def _machines(of: Values, end: End) -> list[int]:
    named = of.server if end is End.SERVER else of.client
    machines, calls = np.unique(named, return_counts=True)
    return [int(machine) for machine in machines[calls >= MACHINE_EDGE_CALLS_MIN] if machine != UNNAMED]


def _is_all(both: Both, where: Where) -> bool:
    return all(bool(mask.all()) for mask in both.masks(where))


_MACHINES: Final = {
    Kind.SERVER_MACHINE: End.SERVER,
    Kind.CLIENT_MACHINE: End.CLIENT,
}
_NAMES: Final[dict[Kind, Callable[[Edge], list[tuple[str, ...]]]]] = {
    Kind.CALLEE: lambda edge: [(edge.server,)],
    Kind.CALLER: lambda edge: [(edge.client,)],
    Kind.METHOD: lambda edge: [(edge.server, edge.method)],
    Kind.LINK: lambda edge: [(edge.client, edge.server)],
    Kind.EDGE: lambda edge: [tuple(edge)],
}
# How many of the names must be there.
_NAMED: Final = {Kind.CALLEE: 1, Kind.CALLER: 1, Kind.METHOD: 1, Kind.LINK: 2, Kind.EDGE: 0}
