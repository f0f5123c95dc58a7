"""What searches of an index look at: all of it as it was at one time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from scotfree import _native
from scotfree.rag.calibration import Bound
from scotfree.rag.pending import Pending
from scotfree.rag.placement.stored import Stored


@dataclass(frozen=True)
class Seen:
    """A change puts another in its place: a search sees all of it or nothing."""

    # None until one is written.
    snapshot: _native.Snapshot | None
    # Its file's.
    name: bytes | None
    # Passages that are in no snapshot yet.
    pending: Pending
    # Passages that are not any more.
    gone: set[int]
    # Which exact values lie beside the snapshot, as the index says, and those.
    said: bytes | None
    stored: Stored
    # Whether each passage is to have a row, and how careful searches have to be, if that was measured.
    keeps_rows: bool
    bound: Bound | None

    @cached_property
    def gone_set(self) -> _native.PassageSet:
        """Those that are not any more, as a search takes them."""
        return _native.PassageSet(list(self.gone))

    @property
    def changes(self) -> int:
        """How many passages changed since the snapshot."""
        return len(self.pending) + len(self.gone)

    @property
    def bare(self) -> frozenset[int]:
        """Clusters that have no codes, and those that are to have none when something is in them."""
        return self.stored.placement.bare | frozenset(self.snapshot.bare() if self.snapshot else ())
