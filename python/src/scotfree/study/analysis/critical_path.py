"""The critical path below a call: the calls that its end waited for, by the rules of CRISP (USENIX ATC 2022).

Of a call's callees the one that ended last is waited for, then the last that had ended before that one began, and
so on. Times are cut to those of the caller first. docs/design/critical-path.md has each rule, and what differs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

# One in so many of its caller's time may two callees overlap and still be one behind the other.
OVERLAP_ONE_IN: Final = 100
# By how much callees may outlast their caller and still be moved into it.
LENGTHENING: Final = 1.01

# Whole numbers by row, plain or an array's.
Numbers = Any


@dataclass(frozen=True)
class Calls:
    """Calls of whole traces, by row."""

    start: Numbers
    taken: Numbers
    # The number of the machine whose clock both are from; below 0 where it is not known.
    clock: Numbers
    # Of a call those that it made, in the order of their starts.
    callees: Callable[[int], Sequence[int]]


class Step(NamedTuple):
    """A call on the path, with when it began and ended within its caller."""

    call: int
    # The place of its caller in the path; -1 of the first.
    above: int
    begin: int
    end: int
    # By how much it was moved, where another machine's clock had put it elsewhere.
    lead: int = 0

    @property
    def taken(self) -> int:
        """What of the path is this call's and that of those below it."""
        return self.end - self.begin


def path(calls: Calls, root: int) -> list[Step]:
    """The critical path below a call, each step behind that of its caller."""
    begin = int(calls.start[root])
    steps: list[Step] = []
    # By a stack, since a trace may be deeper than Python's own; on a ring of parents each call is there once.
    seen = {root}
    waiting = [Step(root, -1, begin, begin + int(calls.taken[root]))]
    while waiting:
        step = waiting.pop()
        place = len(steps)
        steps.append(step)
        callees = [callee for callee in calls.callees(step.call) if callee not in seen]
        if not callees:
            continue
        lead = step.lead + _lead(calls, step, callees)
        for begin, end, callee in _waited_for(step, _inside(calls, step, callees, lead)):
            seen.add(callee)
            waiting.append(Step(callee, place, begin, end, lead))
    return steps


def exclusive(steps: Sequence[Step]) -> list[int]:
    """Of each step what it took less what it waited for; below 0 where callees overlap a little."""
    own = [step.taken for step in steps]
    for step in steps:
        if step.above >= 0:
            own[step.above] -= step.taken
    return own


def parts(steps: Sequence[Step]) -> list[list[tuple[int, int]]]:
    """Of each step when it was itself what was waited for, the first first."""
    below: list[list[Step]] = [[] for _ in steps]
    for step in steps:
        if step.above >= 0:
            below[step.above].append(step)
    return [list(_gaps(step, callees)) for step, callees in zip(steps, below, strict=True)]


def _gaps(step: Step, callees: list[Step]) -> Iterable[tuple[int, int]]:
    reached = step.begin
    for callee in sorted(callees, key=lambda one: one.begin):
        if reached < callee.begin:
            yield reached, callee.begin
        reached = max(reached, callee.end)
    if reached < step.end:
        yield reached, step.end


_Timed = tuple[int, int, int]


def _lead(calls: Calls, step: Step, callees: Sequence[int]) -> int:
    """By how much callees are moved beside their caller, whom another machine's clock has put outside it."""
    own, clocks = int(calls.clock[step.call]), {int(calls.clock[callee]) for callee in callees}
    if own in clocks or len(clocks) > 1 or min(own, *clocks) < 0:
        return 0
    first = min(int(calls.start[callee]) for callee in callees) + step.lead
    last = max(int(calls.start[callee] + calls.taken[callee]) for callee in callees) + step.lead
    if last - first > LENGTHENING * step.taken:
        return 0
    return step.begin - first if first < step.begin else min(step.end - last, 0)


def _inside(calls: Calls, step: Step, callees: Sequence[int], lead: int) -> list[_Timed]:
    """Begin and end of callees within their caller, without those that are none of its time."""
    found = []
    for callee in callees:
        begin = int(calls.start[callee]) + lead
        end = begin + int(calls.taken[callee])
        if begin < step.begin:
            # As CRISP has it, one that juts out on both sides is no part of its caller.
            if not step.begin < end <= step.end:
                continue
            begin = step.begin
        elif end > step.end:
            if begin >= step.end:
                continue
            end = step.end
        found.append((begin, end, callee))
    return found


def _waited_for(step: Step, inside: list[_Timed]) -> list[_Timed]:
    """The callees on the path, the last first. Of several that end at once it is the last to begin."""
    ordered = sorted(inside, key=lambda one: one[1])[::-1]
    found, siblings = ordered[:1], _Siblings(ordered)
    for one in ordered[1:]:
        if siblings.is_before(one, found[-1], step.taken):
            found.append(one)
    return found


class _Siblings:
    """Callees of one call, asked which of two came first."""

    def __init__(self, callees: Sequence[_Timed]) -> None:
        self._callees = callees
        self._moments: list[list[int]] = []

    def is_before(self, one: _Timed, later: _Timed, taken: int) -> bool:
        """Whether one had ended when the other began, or but for a little that clocks can be wrong by."""
        if one[1] < later[0]:
            return True
        is_slight = OVERLAP_ONE_IN * (one[1] - later[0]) < taken
        # Somebody else's begin or end in between says that they were under way together.
        return is_slight and one[1] < later[1] and one[0] < later[0] and self._between(later[0], one[1]) == 2

    def _between(self, low: int, high: int) -> int:
        """How many callees begin or end from one moment to another."""
        if not self._moments:
            self._moments = [sorted(one[side] for one in self._callees) for side in (0, 1)]
        return sum(bisect_right(each, high) - bisect_left(each, low) for each in self._moments)
