"""Processor time of what is measured, threads included."""

from __future__ import annotations

import resource
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def cpu_seconds(work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the processor time of this process meanwhile."""
    before = _used()
    found = work()
    return found, _used() - before


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_bytes() -> int:
    """The most memory this process has had resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
