"""Passages that no snapshot has yet, and their embeddings: in memory if they are few, else where they lie.

So an index of any number of passages is built within the memory of some thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.passages import Passages
from scotfree.rag.trouble import RagError

# Embeddings in memory at once: 25 MB, where they have 384 dimensions.
MEMORY_MAX: Final = 16_384
# Of more than these so many at a time.
PART: Final = 4_096

Numbers = np.ndarray[Any, np.dtype[np.uint32]]
# A passage's number and its similarity.
Scored = tuple[int, float]


class Settled(RagError):
    """Some of them are in a snapshot by now, or gone: a search looks anew."""

    def __init__(self) -> None:
        super().__init__(
            "read embeddings that are in no snapshot yet: some are not there", "remove the folder and index again"
        )


class Pending:
    """Those that there are when it is made."""

    def __init__(self, passages: Passages, dimensions: int) -> None:
        self._passages, self._dimensions = passages, dimensions
        # In their order.
        self.numbers: Numbers = passages.pending()
        self._held: Vectors | None = None
        if len(self.numbers) <= MEMORY_MAX:
            # At once, since between two statements another process may settle some.
            self.numbers, self._held = passages.pending_embeddings(dimensions)

    def __len__(self) -> int:
        return len(self.numbers)

    def parts(self) -> Iterator[tuple[Numbers, Vectors]]:
        """All of them in their order, some at a time, with a row for each; `Settled` if some are not there."""
        for at in range(0, len(self.numbers), PART):
            numbers = self.numbers[at : at + PART]
            yield numbers, self.vectors(numbers)

    def has(self, numbers: Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Of each passage whether it is one of them."""
        return np.isin(numbers, self.numbers)

    def vectors(self, numbers: Sequence[int] | Numbers) -> Vectors:
        """A row for each of these, which are among them; `Settled` if some are not there any more."""
        wanted = np.asarray(numbers, np.uint32)
        if self._held is None:
            return self._read(wanted)
        return self._held[np.searchsorted(self.numbers, wanted)]

    def nearest(self, vector: Vectors, count: int, outside: _native.PassageSet) -> list[Scored]:
        """The nearest to a vector that are not outside; `Settled` if some are not there any more."""
        found: list[Scored] = []
        # Most searches have none to look through.
        for numbers, vectors in self.parts() if len(self.numbers) else ():
            similarities = vectors @ vector
            order = np.argsort(-similarities, kind="stable")
            if outside:
                is_outside = np.frombuffer(outside.has(lent(numbers)), np.bool_)
                order = order[~is_outside[order]]
            first = order[:count]
            found += zip(numbers[first].tolist(), similarities[first].tolist(), strict=True)
        return sorted(found, key=lambda one: -one[1])[:count]

    def _read(self, numbers: Numbers) -> Vectors:
        found = self._passages.embeddings(numbers.tolist(), self._dimensions)
        if len(found) != len(numbers):
            raise Settled
        return found
