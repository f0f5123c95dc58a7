"""One process at a time writes a store."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scotfree.study.trouble import StudyError

NAME = "lock"


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Holds the store's lock. The system lets go of it when the process ends, however it does."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise StudyError(
                f"write {store}: process {holder} is writing it",
                "wait for it, or name another folder with --store",
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
