"""What to keep, when not all of it has room: the greatest saving by byte first (Dantzig's greedy knapsack)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """Something that may be kept."""

    key: int
    # What a search saves by it on average, in seconds.
    saving_s: float
    bytes: int


def ordered(items: Sequence[Item]) -> list[Item]:
    """Those that save anything, the greatest saving by byte first."""
    worth = [item for item in items if item.saving_s > 0]
    return sorted(worth, key=lambda item: (-item.saving_s / max(item.bytes, 1), item.key))


def chosen(items: Sequence[Item], bytes_max: float) -> list[Item]:
    """Those to keep in so many bytes, in the order of `ordered`.

    Of the greatest possible saving it has at least half: the first that fit, or the one that saves most.
    """
    room, kept = bytes_max, []
    for item in ordered(items):
        if item.bytes <= room:
            kept.append(item)
            room -= item.bytes
    fits = [item for item in items if item.bytes <= bytes_max and item.saving_s > 0]
    best = max(fits, key=lambda item: item.saving_s, default=None)
    if best and best.saving_s > sum(item.saving_s for item in kept):
        return [best]
    return kept


def given_up(items: Sequence[Item], bytes_min: float) -> list[Item]:
    """Those to do without for so many bytes, the least saving by byte first; all, if they are not enough."""
    if bytes_min <= 0:
        return []
    left: list[Item] = []
    lacking = bytes_min
    for item in sorted(items, key=lambda item: (item.saving_s / max(item.bytes, 1), item.key)):
        if lacking <= 0:
            break
        left.append(item)
        lacking -= item.bytes
    # What came last may be so large that some before it were not needed; those that save most stay.
    for item in sorted(left, key=lambda item: (-item.saving_s, item.key)):
        if item.bytes <= -lacking:
            left.remove(item)
            lacking += item.bytes
    return left
