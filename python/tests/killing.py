"""Kills an action at a chosen change of the file system, as `kill -9` would: nothing of it is cleaned up."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from typing import Any, Final

# What Python tells of before it does it; Arrow and DuckDB open files of their own without a word.
_CHANGES: Final = {"os.mkdir", "os.rename", "os.remove", "os.rmdir"}
_KILLED: Final = 9


def is_killed_at(step: int, action: Callable[[], Any], *, since: str = "") -> bool:
    """Does it in a process of its own that ends before its change of that number; whether it came so far.

    Changes count from the first one of a path that ends with `since`.
    """
    # Not a fork of this one: what the threads of DuckDB and Arrow held then would be held there for ever.
    child = multiprocessing.get_context("spawn").Process(target=_do, args=(step, action, since))
    child.start()
    child.join()
    return child.exitcode == _KILLED


def _do(step: int, action: Callable[[], Any], since: str) -> None:
    _die_at(step, since)
    try:
        action()
    finally:
        os._exit(0)


def _die_at(step: int, since: str) -> None:
    left, counts = step, False

    def told(event: str, of: tuple[Any, ...]) -> None:
        nonlocal left, counts
        if event not in _CHANGES:
            return
        counts = counts or any(str(path).endswith(since) for path in of)
        if counts:
            if left == 0:
                os._exit(_KILLED)
            left -= 1

    sys.addaudithook(told)
