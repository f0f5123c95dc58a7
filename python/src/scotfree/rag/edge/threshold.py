"""Below which cost embeddings are not cached (thesis, Algorithm 3).

The text raises it when a query that missed the cache was faster than the average, the pseudo-code when it was
slower. The text is taken, the other is a switch.

A miss is of what the cache is to have: of a cluster that costs no less than the threshold. The thesis does not say
so; but if clusters that are not to be cached could be missed, a threshold above a few would be missed below by
nearly every query, and so would rise until nothing is cached, never to fall again.

Nor does it say when a query that visits many clusters missed the cache. It did if more of those that the cache is
to have were lacking than were there (`Found.has_missed`). Were one that is lacking enough, the threshold would
rise until nearly all above it have room, although the counters choose better among more: 1.13 times the best
fixed threshold's P95 on Debian's documentation (docs/edgerag.md).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

# The thesis counts in ones and gives no unit, and no weight for the average. A step is this share of what a
# cluster costs in the median: fifty steps are a cluster, in any unit. Replayed on CISI and CACM (docs/edgerag.md),
# steps five times as long pass over thresholds that are right, and ones half as long take hundreds of queries to
# get there.
STEP_SHARE = 0.02
WEIGHT = 0.03


@dataclass
class Threshold:
    """Follows how queries go."""

    # As the pseudo-code has it.
    is_pseudo_code: bool = False
    # By how much it moves.
    step_ns: float = 0.0
    weight: float = WEIGHT
    # Embeddings that cost less are not kept.
    cost_ns: float = 0.0
    average_ns: float | None = None

    def observe(self, latency_ns: float, *, has_missed: bool) -> None:
        """After each query: how long its retrieval took, and whether the cache lacked what it is to have."""
        average_ns = latency_ns if self.average_ns is None else self.average_ns
        if not has_missed:
            self.cost_ns = max(0.0, self.cost_ns - self.step_ns)
        elif average_ns < latency_ns if self.is_pseudo_code else latency_ns < average_ns:
            self.cost_ns += self.step_ns
        self.average_ns = (1 - self.weight) * average_ns + self.weight * latency_ns


def step_ns(costs_ns: Sequence[float]) -> float:
    """How far a threshold moves among clusters that cost so much: nowhere, if there are none."""
    return STEP_SHARE * statistics.median(costs_ns) if costs_ns else 0.0
