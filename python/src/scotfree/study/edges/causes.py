"""Where added time comes from: of all scopes that are slower those that explain it, each call by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scotfree.study.edges import chance
from scotfree.study.edges.evidence import Evidence, Part, Summary
from scotfree.study.edges.scopes import Scope, Where

# A remainder that is surely slower is the fault's neighbour if it grew by less than this share of the rest; one
# that is hardly slower is a part of the fault if it grew by that much. In standard deviations.
_NEIGHBOUR: Final = 0.1
_SLOWER_Z: Final = 1.645
_PART: Final = 0.3
_HARDLY_Z: Final = 0.8
# Where it could not be much slower than that, it says nothing.
_TELLING_Z: Final = 2.3
# More causes than anybody reads.
_CAUSES_MAX: Final = 50


@dataclass(frozen=True)
class Cause:
    """One of what is slower or fails more."""

    part: Part
    scope: Scope
    summary: Summary

    @property
    def added(self) -> float:
        """ns more a call, or more failed calls as a share."""
        return self.summary.b - self.summary.a


def causes(evidence: Evidence, found: Sequence[Scope], p_max: float) -> list[Cause]:
    """Of scopes that were found to differ: what explains most, then what explains most of the rest, and so on."""
    taken: dict[int, list[Where]] = {}
    explained: list[Cause] = []
    while len(explained) < _CAUSES_MAX:
        left = [one for scope in found if (one := _slower(evidence, scope, taken, p_max))]
        if not left:
            break
        best = _narrowed(evidence, max(left, key=lambda one: round(one.summary.z, 6)), left, taken)
        explained.append(best)
        for place, where in best.scope.edges.items():
            taken.setdefault(place, []).append(where)
    return explained


def _slower(evidence: Evidence, scope: Scope, taken: Mapping[int, list[Where]], p_max: float) -> Cause | None:
    summary = evidence.summary(scope, taken)
    if summary is None or summary.p > p_max or summary.z <= 0 or not summary.is_material:
        return None
    return Cause(evidence.part, scope, summary)


def _narrowed(evidence: Evidence, best: Cause, left: Sequence[Cause], taken: Mapping[int, list[Where]]) -> Cause:
    """A part of it, while the rest of it is not slower by itself."""
    while True:
        inner = [one for one in left if best.scope.has(one.scope) and _is_all_of(evidence, best, one, taken)]
        if not inner:
            return best
        best = max(inner, key=lambda one: round(one.summary.z, 6))


def _is_all_of(evidence: Evidence, outer: Cause, inner: Cause, taken: Mapping[int, list[Where]]) -> bool:
    rest = evidence.summary(outer.scope, taken, besides=inner.scope)
    if rest is None or chance.rank_z_max(rest.strata) < _TELLING_Z:
        return False
    z_min, share = (_SLOWER_Z, _NEIGHBOUR) if rest.z >= _SLOWER_Z else (_HARDLY_Z, _PART)
    return rest.z < z_min or rest.b - rest.a < share * inner.added
