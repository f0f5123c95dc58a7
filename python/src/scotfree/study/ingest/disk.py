"""A full disk and too little memory, told to the user. Whoever reports them: the system, Arrow or DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from scotfree.study.ingest.limits import Limits
from scotfree.study.outside import is_full
from scotfree.study.trouble import StudyError


@contextmanager
def told(folder: Path, limits: Limits) -> Iterator[None]:
    """Turns such errors into a `StudyError`; the scratch files stay, so that the same command goes on."""
    try:
        yield
    except (OSError, duckdb.Error) as error:
        if is_full(error):
            advice = (
                "make room, or name a folder on another disk with --store; the same command goes on where it was"
            )
            raise StudyError(f"write {folder}: the disk is full", advice) from error
        if isinstance(error, duckdb.OutOfMemoryException):
            advice = "give more with --memory; the same command goes on where it was"
            raise StudyError(f"merge in {folder}: {limits.memory} of memory are not enough", advice) from error
        raise
    except MemoryError as error:
        advice = "close other programs or use fewer --threads; the same command goes on where it was"
        raise StudyError(f"ingest into {folder}: the system has no more memory", advice) from error
