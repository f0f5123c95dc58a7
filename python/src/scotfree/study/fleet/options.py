"""What can be chosen of a fleet."""

from __future__ import annotations

from dataclasses import dataclass

from scotfree.study.trouble import StudyError

# Traces are drawn in so many cells, each from a stream of its own: partitions are whole cells, so that the same
# seed gives the same calls whatever their number.
CELLS = 64
METHODS_MIN = 20
DEPTH_MAX = 20


@dataclass(frozen=True)
class FleetOptions:
    """A fleet, described. The same description gives the same calls."""

    # At least so many calls: the last trace is whole.
    spans: int = 1_000_000
    methods: int = 1_000
    services: int = 0
    seed: int = 1
    partitions: int = 16
    # So few that every cluster has enough calls in each half hour of a fleet of a million (F18).
    clusters: int = 12
    machines_per_cluster: int = 40
    # Shares of calls fall with rank to this power; 1.35 gives the most popular of 10,000 methods 28 % (F3).
    zipf: float = 1.35
    # Calls from the root to the deepest leaf.
    depth: int = DEPTH_MAX
    # Share of calls that fail (section 4.4).
    error_share: float = 0.019
    # Traces are kept by a decision at the root, with probability 1 / sample_weight (R7).
    sampling: bool = True
    # Standard deviation of the machines' clocks.
    skew_ns: int = 2_000_000
    metrics: bool = True
    profiles: bool = True

    def __post_init__(self) -> None:
        """Refuses what cannot be made."""
        if CELLS % self.partitions:
            raise StudyError(
                f"generate a fleet in {self.partitions} partitions", f"give a number that divides {CELLS}"
            )
        if self.methods < METHODS_MIN or self.spans < 1:
            raise StudyError(
                f"generate {self.spans} calls of {self.methods} methods",
                f"give at least 1 call and {METHODS_MIN} methods",
            )
        if not 2 <= self.depth <= DEPTH_MAX:
            raise StudyError(f"generate trees of depth {self.depth}", f"give a depth from 2 to {DEPTH_MAX}")

    @property
    def service_count(self) -> int:
        """As chosen, or some 40 methods each."""
        return self.services or max(12, self.methods // 40)
