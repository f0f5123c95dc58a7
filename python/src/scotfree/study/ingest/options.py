"""What a user may set of an ingest."""

from __future__ import annotations

from dataclasses import dataclass, field

from scotfree.study.ingest.forms import READERS
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.reader import Reader


@dataclass(frozen=True)
class Options:
    """What the user may set."""

    # The form of all inputs; None: each is looked at.
    form: str | None = None
    # For tables.
    mapping: ColumnMap = field(default_factory=ColumnMap)
    # What early times count from; None: they are taken as they are.
    epoch_ns: int | None = None
    limits: Limits = field(default_factory=Limits)
    quiet: bool = True
    # Whether a store of other data may be made one of this.
    replaces: bool = False
    # Above that many the rarest are counted as one.
    methods_max: int = 1_000_000
    readers: tuple[Reader, ...] = READERS
    # Of today; None: the clock's.
    now_ns: int | None = None

    def digest(self) -> str:
        """Of what changes how an input is read."""
        digest = self.mapping.digest()
        return digest if self.epoch_ns is None else f"{digest} {self.epoch_ns}"
