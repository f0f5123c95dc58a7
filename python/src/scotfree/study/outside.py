"""What the system and the libraries below refuse: files, disks, memory. Whoever of them reports it."""

from __future__ import annotations

import sys

from scotfree.trouble import UserError, is_full

__all__ = ["is_full", "is_out_of_memory", "told"]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether it says that the memory is used up."""
    return isinstance(error, (MemoryError, *_of_library("duckdb", "OutOfMemoryException")))


def _of_library(module: str, name: str) -> tuple[type[BaseException], ...]:
    """An error's class of a library, which nobody raises before it is imported: that takes seconds."""
    loaded = sys.modules.get(module)
    return () if loaded is None else (getattr(loaded, name),)


def told(error: BaseException) -> UserError | None:
    """The error in the words of a user's next step; nothing, if it is none of those."""
    if isinstance(error, ModuleNotFoundError) and error.name and not error.name.startswith("scotfree"):
        # A package without its extra has not all that the study stands on.
        return UserError(
            f"the package {error.name} is not installed",
            "install what the study and the planner stand on: pip install 'scotfree[study]'",
        )
    libraries = (*_of_library("duckdb", "Error"), *_of_library("pyarrow", "ArrowException"))
    if not isinstance(error, (OSError, MemoryError, *libraries)):
        return None
    what = str(error).splitlines()[0] if str(error) else type(error).__name__
    if is_full(error):
        return UserError(f"the disk is full: {what}", "make room, or write to another disk")
    if is_out_of_memory(error):
        return UserError(f"the memory is used up: {what}", "give more with --memory, or close other programs")
    if isinstance(error, OSError) and error.errno is not None:
        return UserError(what, "make it possible, or name another file or folder")
    return UserError(f"what was read cannot be understood: {what}", "if it is a store, remove it and ingest again")
