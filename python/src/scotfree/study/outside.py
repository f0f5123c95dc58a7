"""What the system and the libraries below refuse: files, disks, memory. Whoever of them reports it."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from scotfree.study.trouble import StudyError
from scotfree.trouble import is_full

__all__ = ["is_full", "is_out_of_memory", "told"]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that the memory is used up."""
    return isinstance(error, MemoryError | duckdb.OutOfMemoryException)


def told(error: BaseException) -> StudyError | None:
    """The error in the words of a user's next step; nothing, if it is none of those."""
    if not isinstance(error, OSError | MemoryError | duckdb.Error | pa.ArrowException):
        return None
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if is_full(error):
        return StudyError(f"the disk is full: {what}", "make room, or write to another disk")
    if is_out_of_memory(error):
        return StudyError(f"the memory is used up: {what}", "give more with --memory, or close other programs")
    if isinstance(error, OSError) and error.errno is not None:
        return StudyError(what, "make it possible, or name another file or folder")
    return StudyError(
        f"what was read cannot be understood: {what}", "if it is a store, remove it and ingest again"
    )
