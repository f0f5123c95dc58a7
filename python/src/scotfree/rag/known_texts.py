"""Texts whose embeddings are at hand: of all that have the same text one is embedded.

An index keeps an embedding until a snapshot is made, which is the whole of a first build. After it a row is left,
which is as good, or a code alone; then a text that comes again is embedded again. Which passage has a text is
known as long as an index is open, in a file of SQLite's that nobody else sees and that is gone with it: 30 bytes a
passage.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from scotfree.rag.embed.batches import embed_each
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.passages import Passages
from scotfree.rag.placement.rows import of_length_one
from scotfree.rag.placement.stored import Stored

# Texts that are looked at together.
_MANY: Final = 500
# Of passages with the same text so many are looked at: all have the same row but for what stands above them.
_ALIKE_MAX: Final = 8


class KnownTexts:
    """Of the passages of an index those that no snapshot has yet, by their texts."""

    def __init__(self, passages: Passages, embedder: Embedder, stored: Callable[[], Stored] = Stored) -> None:
        """`stored` says which rows there are."""
        self._stored = stored
        self._passages = passages
        self._embedder = embedder
        # Made when a text is first looked for: who only asks needs none.
        self._numbers: sqlite3.Connection | None = None

    def copied(self, texts: Iterable[tuple[str, str]]) -> dict[str, Vectors]:
        """Of a document's passages, each what is embedded of it and its text, those that are copies, by rows.

        To look for a text takes a fourth of what embedding it does, and copies are seldom alone: it ends at the
        first that is none.
        """
        found: dict[str, Vectors] = {}
        if self._stored().exact is None:
            return found
        for embedded, text in texts:
            if self._known(embedded) is not None:
                continue
            if (vector := self._row(embedded, text)) is None:
                break
            found[embedded] = vector
        return found

    def _row(self, embedded: str, text: str) -> Vectors | None:
        numbers = self._passages.with_text(text)[:_ALIKE_MAX]
        same = [number for number, one in self._passages.texts(numbers).items() if one.embedded == embedded]
        rows = self._stored().whole(same)
        return of_length_one(np.array(list(rows.values())[:1]))[0] if rows else None

    def embedded(
        self, texts: Sequence[str], at_hand: Mapping[str, Vectors] = MappingProxyType({})
    ) -> tuple[Iterator[Vectors], int]:
        """The embedding of each, and how many are made for that: each text once, and none that is at hand."""
        if not texts:
            return iter(()), 0
        found = {text: at_hand[text] if text in at_hand else self._known(text) for text in dict.fromkeys(texts)}
        missing = [text for text, vector in found.items() if vector is None]
        return self._each(texts, found, missing), len(missing)

    def _each(
        self, texts: Sequence[str], found: dict[str, Vectors | None], missing: Sequence[str]
    ) -> Iterator[Vectors]:
        made = embed_each(self._embedder, missing)
        for text in texts:
            vector = found[text]
            if vector is None:
                # In the order in which they are first asked for.
                vector = found[text] = next(made)
            yield vector

    def add(self, numbers: Mapping[str, int]) -> None:
        """Makes known which passages have these texts."""
        if numbers:
            self._add(self._table(), numbers.items())

    def _known(self, text: str) -> Vectors | None:
        row = self._table().execute("select passage from known where text = ?", [_digest(text)]).fetchone()
        # Its passage may be gone, or in a snapshot by now.
        return self._passages.embedding(row[0]) if row else None

    def _table(self) -> sqlite3.Connection:
        if self._numbers is None:
            # Threads that change an index wait for each other.
            table = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            table.execute("pragma journal_mode = off")
            table.execute("create table known (text blob primary key, passage integer not null) without rowid")
            self._numbers = table
            self._fill(table)
        return self._numbers

    def _fill(self, table: sqlite3.Connection) -> None:
        """With what an update that was interrupted left, too."""
        numbers = self._passages.unsettled()
        for at in range(0, len(numbers), _MANY):
            texts = self._passages.texts(numbers[at : at + _MANY])
            self._add(table, ((text.embedded, number) for number, text in texts.items()))

    @staticmethod
    def _add(table: sqlite3.Connection, numbers: Iterable[tuple[str, int]]) -> None:
        rows = [(_digest(text), number) for text, number in numbers]
        table.execute("begin")
        table.executemany("insert or replace into known values (?, ?)", rows)
        table.execute("commit")


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
