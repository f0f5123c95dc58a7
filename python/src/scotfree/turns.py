"""Work of which so much is done at once: a bounded number waits for it, each for a bounded time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class BusyError(Exception):
    """There was no turn."""


class Turns:
    """So many at once. So many more wait, each no longer than its patience; who comes then is told."""

    def __init__(self, at_once: int, waiting_max: int = 0, patience_s: float = 0.0) -> None:
        self.at_once = at_once
        self._patience_s = patience_s
        self._free = threading.Semaphore(at_once)
        self._places = threading.Semaphore(waiting_max)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Within it is one's turn. A `BusyError` says that there was none."""
        if not self._free.acquire(blocking=False):
            self._wait()
        try:
            yield
        finally:
            self._free.release()

    def _wait(self) -> None:
        if not self._places.acquire(blocking=False):
            raise BusyError(f"{self.at_once} questions are being answered")
        try:
            if not self._free.acquire(timeout=self._patience_s):
                raise BusyError(f"{self.at_once} questions are being answered since {self._patience_s:g} s")
        finally:
            self._places.release()
