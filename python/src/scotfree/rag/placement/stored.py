"""The exact values of an index beside its snapshot: opened, written, and carried on when the snapshot changes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.placement import rows
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.placement.rows import Exact, Numbers, Rows
from scotfree.rag.trouble import Damaged

# By which an index knows where they lie.
SETTING: Final = "placement"
# Also what was being written when its process was killed.
FILES: Final = "exact-*"
_FILE: Final = "exact-{}.scot"
_FILE_NAME: Final = re.compile(r"exact-\d+\.scot")
# Rows that are in memory at once while a file is written.
_BATCH: Final = 512

# The vectors of passages, in their order.
Made = Callable[[Sequence[int]], Vectors]


@dataclass(frozen=True)
class Stored:
    """What is kept of an index's clusters, and the file, if anything is."""

    placement: Placement = field(default_factory=Placement)
    exact: Exact | None = None
    # Of the file, even if it is not there.
    name: str | None = None

    @classmethod
    def opened(cls, folder: Path, said: bytes | None, snapshot: Path | None, dimensions: int) -> Stored:
        """As an index says of itself; a file that is not there is as one without rows.

        A `RagError` says what is wrong with a file.
        """
        if said is None or snapshot is None:
            return cls()
        placement, name = Placement.read(said), file_of(said)
        of = rows.identity(snapshot)
        if name is not None:
            with suppress(FileNotFoundError):
                return cls(placement, Exact(folder / name, of, dimensions), name)
        return cls(placement, None, name)

    @classmethod
    def salvaged(cls, folder: Path, said: bytes | None, dimensions: int) -> Stored:
        """The rows of an index whose snapshot is lost, as far as they are whole; of no cluster."""
        if (name := file_of(said)) is None:
            return cls()
        try:
            return cls(exact=Exact(folder / name, None, dimensions), name=name)
        except (Damaged, FileNotFoundError):
            return cls(name=name)

    @property
    def is_lost(self) -> bool:
        """Whether there is no file where one should be."""
        return self.name is not None and self.exact is None

    @property
    def file_bytes(self) -> int:
        """On the disk."""
        return self.exact.file_bytes if self.exact else 0

    @property
    def memory_bytes(self) -> int:
        """In memory while the index is open."""
        return self.exact.memory_bytes if self.exact else 0

    def vectors(self, numbers: Sequence[int]) -> dict[int, Vectors]:
        """Of passages those that are kept."""
        return self.exact.vectors(numbers) if self.exact else {}

    def whole(self, numbers: Sequence[int]) -> dict[int, Vectors]:
        """Of passages those that are kept, and not damaged."""
        if self.exact is None:
            return {}
        known, found = self.exact.whole(numbers)
        return dict(zip(known, rows.restored(found), strict=True))

    def products(self, numbers: Sequence[int], vector: Vectors) -> tuple[list[int], list[float]]:
        """Of passages those that are kept, and their inner products with a vector."""
        return self.exact.products(numbers, vector) if self.exact else ([], [])

    def has(self, numbers: Sequence[int]) -> set[int]:
        """Of passages those that are kept."""
        if self.exact is None:
            return set()
        return {number for number, known in zip(numbers, self.exact.has(numbers), strict=True) if known}

    def written(
        self, folder: Path, snapshot: Path, placement: Placement, clusters: Sequence[Sequence[int]], made: Made
    ) -> bytes:
        """Writes the file for a placement in a snapshot; returns what an index is to say of itself.

        `clusters` are the passages of each cluster that are to be kept if it is. Rows that are known are copied;
        `made` gives the vectors of others, and of those whose rows are damaged. Nothing counts before the index
        says so.
        """
        if not placement.kept:
            return _said(None, placement)
        held, others = (
            _ordered(passage for cluster in kind for passage in clusters[cluster])
            for kind in (placement.memory, placement.disk)
        )
        name = _FILE.format(1 + (int(self.name.split("-")[1].split(".")[0]) if self.name else 0))
        batches = (rows_of for part in (held, others) for rows_of in self._batches(part, made))
        rows.write(folder / name, rows.identity(snapshot), held, others, batches)
        return _said(name, placement)

    def _batches(self, numbers: Numbers, made: Made) -> Iterator[Rows]:
        for at in range(0, len(numbers), _BATCH):
            yield self._rows(numbers[at : at + _BATCH].tolist(), made)

    def _rows(self, numbers: list[int], made: Made) -> Rows:
        parts = dict(zip(*self.exact.whole(numbers), strict=True)) if self.exact else {}
        missing = [number for number in numbers if number not in parts]
        if missing:
            parts |= dict(zip(missing, rows.rounded(missing, made(missing)), strict=True))
        return np.array([parts[number] for number in numbers], next(iter(parts.values())).dtype)


def file_of(said: bytes | None) -> str | None:
    """The name of the file, if an index says that it has one; `ValueError` or such: what it says is none."""
    name = json.loads(said)["file"] if said else None
    if name is not None and not _FILE_NAME.fullmatch(name):
        raise ValueError("the name of its file is none")
    return name


def _said(name: str | None, placement: Placement) -> bytes:
    return json.dumps({"file": name} | placement.written()).encode()


def _ordered(passages: Iterator[int]) -> Numbers:
    return np.array(sorted(passages), np.uint32)
