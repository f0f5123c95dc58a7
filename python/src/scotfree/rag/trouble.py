"""What the user must change."""

from __future__ import annotations

import sqlite3

from scotfree.trouble import UserError, is_full


class RagError(UserError):
    """Something about documents, an index or an embedder that the user must change."""


def told(error: Exception) -> RagError | None:
    """An error of the system or of a library in the words of a user's next step; nothing, if it is another."""
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if is_full(error):
        return RagError(f"the disk is full: {what}", "make room; the same command goes on where this one was")
    if isinstance(error, MemoryError):
        return RagError(f"the memory is used up: {what}", "close other programs")
    if isinstance(error, OSError | sqlite3.OperationalError):
        return RagError(what, "make it possible, or name another file or folder")
    if isinstance(error, sqlite3.DatabaseError):
        return RagError(f"the index is damaged: {what}", "remove its folder and index again")
    return None
