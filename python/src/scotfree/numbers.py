"""Numbers that flags take, within bounds: what is none is refused before anything is read."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Final

_UNITS: Final = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
_DECIMAL: Final = {"B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
_SIZES: Final = _DECIMAL | {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# As long as a call may last (see `scotfree.study.ingest.clean`).
_DURATION_NS_MAX: Final = 30 * 86_400e9


def whole(low: int, high: int) -> Callable[[str], int]:
    """The type of a flag that takes a whole number from `low` to `high`."""

    def number(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,18}", text) or not low <= int(text) <= high:
            raise ArgumentTypeError(f"{text} is no whole number from {low} to {high}")
        return int(text)

    return number


def amount(low: float, high: float) -> Callable[[str], float]:
    """The type of a flag that takes a number from `low` to `high`."""

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        # Written so that it refuses what is no number.
        if not low <= value <= high:
            raise ArgumentTypeError(f"{text} is no number from {low:g} to {high:g}")
        return value

    return number


def duration_ns(text: str) -> float:
    """A time with its unit, as 2ms, in ns."""
    found = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,18})?) ?(ns|us|ms|s)", text)
    value = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < value <= _DURATION_NS_MAX:
        raise ArgumentTypeError(f"{text} is no time of up to 30 days; write 2ms, 500us or 1.5s")
    return value


def size_bytes(text: str) -> int:
    """A size with its unit, as 400MB, in bytes."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([kKMG]?B|[KMG]iB)", text)
    if not found:
        raise ArgumentTypeError(f"{text} is no size; write 400MB, 1.5GB, 64MiB or 100kB")
    return round(float(found[1]) * _SIZES[found[2]])
