"""One trace as a waterfall: each call below its caller, and the critical path through them.

The critical path is what the trace's end waited for: going back from a call's end, the callee that ended last
before, then the one that ended last before that one began, and so on; what lies between them is the call's own.
Times are as recorded: where clocks of machines differ, of a callee that part counts that lies within its caller.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]


@dataclass
class Bar:
    """A call in its trace."""

    row: Row
    start_ns: int
    end_ns: int
    depth: int = 0
    callees: list[Bar] = field(default_factory=list)
    # Parts of the critical path that are its own, the last first.
    critical: list[tuple[int, int]] = field(default_factory=list)

    @property
    def critical_ns(self) -> int:
        """How much of the critical path is its own."""
        return sum(end - start for start, end in self.critical)


def waterfall(calls: Sequence[Row]) -> list[Bar]:
    """The calls of one trace in the order of a waterfall, with depth and critical path."""
    bars = {row["span_id"]: _bar(row) for row in calls}
    roots = [bar for bar in bars.values() if bar.row["parent_id"] not in bars or bar.row["parent_id"] is None]
    for bar in bars.values():
        above = bars.get(bar.row["parent_id"])
        if above is not None and above is not bar:
            above.callees.append(bar)
    shown: dict[int, Bar] = {}
    # Calls on a ring of parents are below no root.
    for root in [*_in_order(roots), *_in_order(list(bars.values()))]:
        _show(root, 0, shown)
    if roots:
        _walk(max(roots, key=lambda bar: bar.end_ns))
    return list(shown.values())


def _bar(row: Row) -> Bar:
    # Without the client's record, the server's time is what is known.
    known = row["total_ns"] if row["total_ns"] is not None else row["server_app_ns"]
    return Bar(row, row["start_ns"], row["start_ns"] + (known or 0))


def _in_order(bars: list[Bar]) -> list[Bar]:
    return sorted(bars, key=lambda bar: (bar.start_ns, bar.row["span_id"]))


def _show(bar: Bar, depth: int, shown: dict[int, Bar]) -> None:
    """A call, then its callees: by a stack, since a trace may be deeper than Python's own."""
    waiting = [(bar, depth)]
    while waiting:
        one, below = waiting.pop()
        if one.row["span_id"] in shown:
            continue
        one.depth = below
        shown[one.row["span_id"]] = one
        waiting += [(callee, below + 1) for callee in reversed(_in_order(one.callees))]


def _walk(root: Bar) -> None:
    """Marks the critical path of a trace."""
    seen: set[int] = set()
    waiting = [(root, root.start_ns, root.end_ns)]
    while waiting:
        bar, begin_ns, until = waiting.pop()
        if bar.row["span_id"] in seen:
            continue
        seen.add(bar.row["span_id"])
        for callee, begin, end in _waited_for(bar, begin_ns, until):
            if end < until:
                bar.critical.append((end, until))
            waiting.append((callee, begin, end))
            until = begin
        if begin_ns < until:
            bar.critical.append((begin_ns, until))


def _waited_for(bar: Bar, begin_ns: int, end_ns: int) -> Iterator[tuple[Bar, int, int]]:
    """The callees that a call waited for, the last first, each with when it began and ended within the call."""
    until = end_ns
    for callee in sorted(bar.callees, key=lambda one: (-one.end_ns, one.start_ns)):
        begin, end = max(callee.start_ns, begin_ns), min(callee.end_ns, until)
        # One that ends while a later one is waited for was beside it.
        is_beside = callee.end_ns > until and until != end_ns
        if begin < end and not is_beside:
            yield callee, begin, end
            until = begin
