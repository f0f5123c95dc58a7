"""What of an index's files is not as it was written: told as damage, with the file and the mend.

Invariant: whatever stands in a file, who reads it through this hears a `RagError` and no other error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scotfree.rag.trouble import Damaged

MEND: Final = "remove its folder and index again: your files are as they were (`scot rag check` says what else is)"
# Codes and rows can be made again from what else there is.
REMADE: Final = "`scot rag check --mend` makes anew what can be"
# Our statements are right, so these say that the file is wrong; others are the system's, which is busy or full.
_OF_DAMAGE: Final = {
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT),
    *(sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG),
}
# It ends before what it says that it has.
_SHORT_READ: Final = sqlite3.SQLITE_IOERR_SHORT_READ
_PRIMARY: Final = 0xFF
# What a statement ends with that is not carried out.
STATED: Final = (UnicodeDecodeError, sqlite3.Error)
# Of values that are none of ours.
WRONG: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def damaged(path: Path, what: str) -> Damaged:
    """That of a file `what` is damaged."""
    return Damaged(f"read {path}: {what} is damaged", MEND)


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """What is read within is `what` of a file, or damaged."""
    try:
        yield
    except WRONG:
        raise damaged(path, what) from None


@contextmanager
def stated(path: Path) -> Iterator[None]:
    """Statements within are asked of a file: what SQLite says of it as damaged is told so."""
    try:
        yield
    except STATED as error:
        if told := of(path, error):
            raise told from None
        raise


def of(path: Path, error: UnicodeDecodeError | sqlite3.Error) -> Damaged | None:
    """What SQLite said of a file, if it is damaged; nothing, where something else is in the way."""
    if isinstance(error, UnicodeDecodeError):
        return damaged(path, f"a text in it ({error})")
    return damaged(path, f"it ({error})") if _is_damage(error) else None


def _is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return "Could not decode" in str(error)
    return code & _PRIMARY in _OF_DAMAGE or code == _SHORT_READ


def number(value: object) -> int:
    """A passage's number; `ValueError`: it is none."""
    if type(value) is not int or not 0 < value < 1 << 32:
        raise ValueError
    return value
