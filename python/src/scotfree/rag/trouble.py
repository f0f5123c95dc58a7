"""What the user must change."""

from __future__ import annotations

import importlib
import sqlite3
from typing import Any

from scotfree.trouble import UserError, is_full


class RagError(UserError):
    """Something about documents, an index or an embedder that the user must change."""


class Damaged(RagError):
    """A file of an index is not as it was written, or not there."""


class Busy(RagError):
    """Another process is changing the index, or this one does: it may be waited for."""


def needed(module: str, extra: str) -> Any:
    """A module that comes with one of the package's extras; a `RagError` says which, if it is not there."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise missing(error, extra) from None


def missing(error: ModuleNotFoundError, extra: str) -> RagError:
    """That a module is not there which comes with one of the package's extras."""
    advice = f"install the package scotfree with its extra: pip install 'scotfree[{extra}]'"
    return RagError(f"import {error.name}: {error}", advice)


def told(error: Exception) -> RagError | None:
    """An error of the system or of a library in the words of a user's next step; nothing, if it is another."""
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if is_full(error):
        return RagError(f"the disk is full: {what}", "make room; the same command goes on where this one was")
    # Of what libraries in C++ lack.
    if isinstance(error, MemoryError) or "bad_alloc" in what:
        return RagError(f"the memory is used up: {what}", "close other programs")
    if isinstance(error, OSError | sqlite3.OperationalError):
        return RagError(what, "make it possible, or name another file or folder")
    if isinstance(error, sqlite3.DatabaseError):
        return RagError(f"the index is damaged: {what}", "remove its folder and index again")
    return None
