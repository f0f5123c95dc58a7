"""What is kept of each cluster beside its codes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """Clusters of which exact values are kept; of the others there are codes, and the embedder."""

    # Rows in the file, and from there in memory as long as the index is open.
    memory: frozenset[int] = frozenset()
    # Rows in the file alone.
    disk: frozenset[int] = frozenset()

    @classmethod
    def of(cls, memory: Iterable[int] = (), disk: Iterable[int] = ()) -> Placement:
        """Of clusters' numbers; what is in memory is not also on the disk."""
        held = frozenset(memory)
        return cls(held, frozenset(disk) - held)

    @property
    def kept(self) -> frozenset[int]:
        """Clusters of both kinds."""
        return self.memory | self.disk

    def written(self) -> dict[str, list[int]]:
        """As an index keeps it."""
        return {"memory": sorted(self.memory), "disk": sorted(self.disk)}

    @classmethod
    def read(cls, said: str | bytes) -> Placement:
        """From what `written` made, as JSON."""
        known = json.loads(said)
        return cls.of(known["memory"], known["disk"])
