"""Ranges of time as people type them: RFC 3339, or from the data's begin or end."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from scotfree.study.trouble import StudyError

# Differences below are none to act on, however sure, unless it is said otherwise.
NS_MIN: Final = 50_000.0
_UNITS_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3_600 * 10**9, "d": 86_400 * 10**9}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_WORDS: Final = "write 2026-01-31T12:00:00Z, -10m (before the data's end) or +10m (after its begin)"


class Range(NamedTuple):
    """From the first time up to before the second, in ns since 1970."""

    from_ns: int
    to_ns: int


@dataclass(frozen=True)
class Moment:
    """A time, or a distance from the data's begin (from 0) or end (below 0)."""

    ns: int
    is_relative: bool

    def within(self, first_ns: int, behind_ns: int) -> int:
        """In ns since 1970, of data between these."""
        if not self.is_relative:
            return self.ns
        return behind_ns + self.ns if self.ns < 0 else first_ns + self.ns


@dataclass(frozen=True)
class Span:
    """From one moment to another; None is the data's begin and end."""

    start: Moment | None = None
    end: Moment | None = None

    def __bool__(self) -> bool:
        return self.start is not None or self.end is not None

    def within(self, first_ns: int, last_ns: int) -> Range:
        """As times of data whose first and last call start then."""
        behind = last_ns + 1
        return Range(
            first_ns if self.start is None else self.start.within(first_ns, behind),
            behind if self.end is None else self.end.within(first_ns, behind),
        )


def moment(text: str) -> Moment:
    """The type of a flag that takes a time."""
    if found := re.fullmatch(r"([+-])([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d)", text):
        distance = int(float(found[2]) * _UNITS_NS[found[3]])
        # The end itself is no distance before it.
        return Moment(-max(distance, 1) if found[1] == "-" else distance, is_relative=True)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(f"{text} is no time; {_WORDS}") from None
    if time.tzinfo is None:
        raise ArgumentTypeError(f"{text} says no offset from UTC, such as Z or +02:00")
    return Moment((time - _EPOCH) // timedelta(microseconds=1) * 1_000, is_relative=False)


def span(text: str) -> Span:
    """The type of a flag that takes FROM..TO; what is left out on one side is the data's begin or end."""
    start, dots, end = text.partition("..")
    if not dots or not (start or end):
        raise ArgumentTypeError(f"{text} is no FROM..TO")
    return Span(moment(start) if start else None, moment(end) if end else None)


def resolved(asked: Span, first_ns: int, last_ns: int, of: str) -> Range:
    """The range, which must be one and touch the data."""
    found = asked.within(first_ns, last_ns)
    if found.from_ns >= found.to_ns:
        raise StudyError(
            f"compare {of} from {said(found.from_ns)} to {said(found.to_ns)}: that is no range",
            "give a --from before --to",
        )
    if found.to_ns <= first_ns or found.from_ns > last_ns:
        raise StudyError(
            f"compare {of} from {said(found.from_ns)} to {said(found.to_ns)}: it has no call in it",
            f"its calls start from {said(first_ns)} to {said(last_ns)}",
        )
    return found


def said(ns: int) -> str:
    """As RFC 3339, in UTC, to the millisecond."""
    try:
        time = _EPOCH + timedelta(microseconds=ns // 1_000)
    except OverflowError:
        return f"{ns} ns"
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
