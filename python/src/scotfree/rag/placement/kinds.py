"""What is kept of each cluster: codes, and exact values beside them; or nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Of clusters that are not named there are codes, and the embedder."""

    # Rows in the file, and from there in memory as long as the index is open.
    memory: frozenset[int] = frozenset()
    # Rows in the file alone.
    disk: frozenset[int] = frozenset()
    # No codes, either: where one is near, all of its passages are embedded.
    bare: frozenset[int] = frozenset()

    @classmethod
    def of(cls, memory: Iterable[int] = (), disk: Iterable[int] = (), bare: Iterable[int] = ()) -> Placement:
        """Of clusters' numbers; what is in memory is not also on the disk, and what is on the disk is not bare."""
        held, rows = frozenset(memory), frozenset(disk)
        return cls(held, rows - held, frozenset(bare) - held - rows)

    @property
    def kept(self) -> frozenset[int]:
        """Clusters of which there are exact values."""
        return self.memory | self.disk

    def fits(self, clusters: int) -> bool:
        """Whether it names none but the first so many."""
        return max(self.kept | self.bare, default=-1) < clusters

    def written(self) -> dict[str, list[int]]:
        """As an index keeps it."""
        return {"memory": sorted(self.memory), "disk": sorted(self.disk), "bare": sorted(self.bare)}

    @classmethod
    def read(cls, said: str | bytes) -> Placement:
        """From what `written` made, as JSON; `ValueError` or another of its kind: nothing such."""
        known = json.loads(said)
        kinds = [known[name] for name in ("memory", "disk", "bare")]
        if any(type(cluster) is not int or cluster < 0 for kind in kinds for cluster in kind):
            raise ValueError("a cluster of it is none")
        return cls.of(*kinds)
