"""What is put side by side of each edge: times outside its handler and of it, which calls failed; or why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from scotfree.study.edges.evidence import CALLS_MIN, Part
from scotfree.study.edges.read import Calls, Edge
from scotfree.study.edges.scopes import Both, Values

WHOLE: Final = "the total: the server's record is missing"
# A handler that was not awaited is no faster.
BY_DEVICE: Final = "a device has answered before it"


def known(
    edges: Sequence[Edge], sides: Sequence[Mapping[Edge, Calls]]
) -> tuple[dict[Part, dict[int, Both]], dict[tuple[Part, int], str]]:
    """What can be put side by side, by number of the edge; and of what cannot (or not as usual) why."""
    found: dict[Part, dict[int, Both]] = {part: {} for part in Part}
    whys: dict[tuple[Part, int], str] = {}
    for place, edge in enumerate(edges):
        a, b = sides[0][edge], sides[1][edge]
        for part, take in _TAKES.items():
            both, whys[part, place] = take(a, b)
            # Few calls say something together with others' of their service.
            if len(both.a) and len(both.b):
                found[part][place] = both
    return found, whys


def _outside(a: Calls, b: Calls) -> tuple[Both, str]:
    """The total less the application's time where both are known, else the total."""
    less = Both(*(_values(of, of.total - of.handler) for of in (a, b)))
    if min(len(less.a), len(less.b)) >= CALLS_MIN:
        return less, ""
    whole = Both(*(_values(of, of.total) for of in (a, b)))
    if min(len(whole.a), len(whole.b)) >= CALLS_MIN:
        return whole, WHOLE
    if min(len(whole.a), len(whole.b)) == 0 < min(len(a.total), len(b.total)):
        return less, "the client's record is missing"
    return less, ""


def _handler(a: Calls, b: Calls) -> tuple[Both, str]:
    own = Both(*(_values(of, of.own) for of in (a, b)))
    if any(2 * np.count_nonzero(of.by_device) > len(of.by_device) for of in (a, b)):
        # Those few that came through are others than all.
        return Both(_chosen(a, a.own, np.zeros(len(a.own), np.bool_)), own.b), BY_DEVICE
    is_missing = min(len(own.a), len(own.b)) == 0 < min(len(a.total), len(b.total))
    return own, "the server's record is missing" if is_missing else ""


def _errors(a: Calls, b: Calls) -> tuple[Both, str]:
    return Both(*(_all(of, of.is_failed) for of in (a, b))), ""


def _origin(a: Calls, b: Calls) -> tuple[Both, str]:
    return Both(*(_all(of, of.is_origin) for of in (a, b))), ""


def _all(of: Calls, which: np.ndarray[Any, Any]) -> Values:
    return Values(which.astype(np.float64), of.server_machine, of.client_machine)


def _values(of: Calls, values: np.ndarray[Any, Any]) -> Values:
    """Of successful calls of which it is known (R1)."""
    return _chosen(of, values, ~np.isnan(values) & ~of.is_failed)


def _chosen(of: Calls, values: np.ndarray[Any, Any], which: np.ndarray[Any, Any]) -> Values:
    return Values(values[which], of.server_machine[which], of.client_machine[which])


_TAKES: Final[dict[Part, Callable[[Calls, Calls], tuple[Both, str]]]] = {
    Part.OUTSIDE: _outside,
    Part.HANDLER: _handler,
    Part.ERRORS: _errors,
    Part.ORIGIN: _origin,
}
