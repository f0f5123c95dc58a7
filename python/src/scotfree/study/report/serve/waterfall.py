"""One trace as a waterfall: each call below its caller, and the critical path through them.

The critical path is what the trace's end waited for: see `scotfree.study.analysis.critical_path`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scotfree.study.analysis import critical_path
from scotfree.study.analysis.critical_path import Calls

Row = dict[str, Any]


@dataclass
class Bar:
    """A call in its trace."""

    row: Row
    start_ns: int
    end_ns: int
    depth: int = 0
    callees: list[Bar] = field(default_factory=list)
    # Parts of the critical path that are its own.
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
        _mark(max(roots, key=lambda bar: bar.end_ns), list(bars.values()))
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


def _mark(root: Bar, bars: list[Bar]) -> None:
    """Marks the critical path of a trace."""
    place = {bar.row["span_id"]: at for at, bar in enumerate(bars)}
    machines = {machine: at for at, machine in enumerate({_clock(bar.row) for bar in bars} - {""})}
    calls = Calls(
        [bar.start_ns for bar in bars],
        [bar.end_ns - bar.start_ns for bar in bars],
        [machines.get(_clock(bar.row), -1) for bar in bars],
        lambda at: [place[callee.row["span_id"]] for callee in _in_order(bars[at].callees)],
    )
    steps = critical_path.path(calls, place[root.row["span_id"]])
    for step, parts in zip(steps, critical_path.parts(steps), strict=True):
        # Drawn where its own clock has it.
        bars[step.call].critical = [(begin - step.lead, end - step.lead) for begin, end in parts]


def _clock(row: Row) -> str:
    """The machine that took its times; empty where it is not known."""
    return row.get("server_machine" if row["total_ns"] is None else "client_machine") or ""
