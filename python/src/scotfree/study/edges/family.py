"""All comparisons of two data sets as one family: the more is asked, the surer each answer has to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scotfree.study.edges import chance
from scotfree.study.edges.evidence import ALPHA, Evidence, Part, Summary
from scotfree.study.edges.scopes import ALL, Both, Scope

Asked = Mapping[Part, Sequence[Scope]]


@dataclass(frozen=True)
class Family:
    """What every scope says, and which of them differ."""

    evidence: dict[Part, Evidence]
    found: dict[Part, list[Scope]]
    # By their edges.
    said: dict[Part, dict[frozenset[Any], Summary]]
    # A chance up to which something is a finding; below 0 if there is none.
    p_max: float

    def edge(self, part: Part, place: int) -> Summary | None:
        """What an edge says by itself."""
        return self.said[part].get(frozenset({(place, ALL)}))


def weighed(known: Mapping[Part, Mapping[int, Both]], asked: Asked, least_ns: float) -> Family:
    """Weighs all scopes; differences of less than that are none to act on."""
    evidence = {part: Evidence(part, of, least_ns=least_ns) for part, of in known.items()}
    # How many comparisons count is known only when each has been made.
    least = [evidence[part].p_min(scope, summary) for part, scope, summary in _summaries(evidence, asked)]
    needed = chance.needed(least, ALPHA)
    for of in evidence.values():
        of.p_needed = needed
    said: dict[Part, dict[frozenset[Any], Summary]] = {part: {} for part in Part}
    testable: list[tuple[Part, Scope, float]] = []
    for part, scope, summary in _summaries(evidence, asked):
        said[part][frozenset(scope.edges.items())] = summary
        if evidence[part].p_min(scope, summary) <= needed:
            testable.append((part, scope, summary.p))
    p_max = chance.holm([p for _, _, p in testable], ALPHA)
    found = {part: [scope for of, scope, p in testable if of is part and p <= p_max] for part in Part}
    return Family(evidence, found, said, p_max)


def _summaries(evidence: Mapping[Part, Evidence], asked: Asked) -> Iterator[tuple[Part, Scope, Summary]]:
    for part, of in asked.items():
        for scope in of:
            if summary := evidence[part].summary(scope, {}):
                yield part, scope, summary
