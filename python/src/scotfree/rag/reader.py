"""A connection to SQLite for those who read, on any thread.

All statements of a connection that are not read to their end share one view of the file: while one of them is
open, what was committed since it began is seen by none, on no thread. So each is read whole at once.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scotfree.rag import damage
from scotfree.rag.trouble import RagError

# Rows that are in memory at once where all of a table are wanted.
_PAGE: Final = 4096


class Reader:
    """The connection; it sees what was committed when a statement began."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        """Takes it, a connection to that file; it may have been made on another thread."""
        self._path = path
        self._connection: sqlite3.Connection | None = connection
        # One thread may come again: to close it, from what a signal calls while a statement is read.
        self._lock = threading.RLock()

    @property
    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._connection is None

    def close(self) -> None:
        """Ends it, when what is being read has been."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def rows(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> list[Any]:
        """All rows; a `RagError` says that it is closed."""
        with self._lock:
            connection = self._connection
            if connection is None:
                raise _closed()
            try:
                return connection.execute(statement, values).fetchall()
            except damage.STATED as error:
                if self._connection is None:
                    raise _closed() from None
                if told := damage.of(self._path, error):
                    raise told from None
                raise

    def value(self, statement: str, values: Sequence[Any] | Mapping[str, Any] = ()) -> Any:
        """The first column of the first row; nothing, where there is no row."""
        rows = self.rows(statement, values)
        return rows[0][0] if rows else None

    def each(self, statement: str) -> Iterator[Any]:
        """Rows by a growing number in their first column, of which the statement ends with `... > ? order by ...`.

        Some at a time: what is changed meanwhile is seen in those that follow.
        """
        last = -1
        while rows := self.rows(f"{statement} limit {_PAGE}", [last]):
            yield from rows
            last = rows[-1][0]


def _closed() -> RagError:
    return RagError("read the index: it is closed", "open it again")
