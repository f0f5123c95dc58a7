"""A trace as a waterfall: calls below their callers, and on the critical path only what was waited for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.report.serve.waterfall import waterfall


def row(span: int, parent: int | None, start: int, end: int, *, by_server: bool = False) -> dict[str, Any]:
    taken = end - start
    times = {"total_ns": None, "server_app_ns": taken} if by_server else {"total_ns": taken, "server_app_ns": None}
    return {"span_id": span, "parent_id": parent, "start_ns": start, **times}


def seen(*rows: dict[str, Any]) -> list[tuple[int, int, int]]:
    """Of each bar in order: which call, how deep, how much of the critical path is its own."""
    return [(bar.row["span_id"], bar.depth, bar.critical_ns) for bar in waterfall(rows)]


def test_calls_stand_below_their_callers_in_the_order_of_their_starts() -> None:
    found = seen(row(4, 2, 25, 30), row(3, 1, 5, 10), row(2, 1, 20, 40), row(1, None, 0, 50))
    assert [(span, depth) for span, depth, _ in found] == [(1, 0), (3, 1), (2, 1), (4, 2)]


def test_one_after_the_other_all_are_waited_for() -> None:
    assert seen(row(1, None, 0, 50), row(2, 1, 5, 20), row(3, 1, 30, 40)) == [(1, 0, 25), (2, 1, 15), (3, 1, 10)]


def test_of_two_at_once_the_one_that_ends_last_is_waited_for() -> None:
    assert seen(row(1, None, 0, 50), row(2, 1, 5, 40), row(3, 1, 10, 30)) == [(1, 0, 15), (2, 1, 35), (3, 1, 0)]


def test_the_path_goes_down_through_callees() -> None:
    assert seen(row(1, None, 0, 50), row(2, 1, 10, 40), row(3, 2, 15, 35)) == [(1, 0, 20), (2, 1, 10), (3, 2, 20)]


def test_a_clock_that_is_ahead_makes_no_path_longer_than_its_caller() -> None:
    assert seen(row(1, None, 0, 50), row(2, 1, 30, 60), row(3, 1, -5, 10)) == [(1, 0, 20), (3, 1, 10), (2, 1, 20)]


def test_a_server_s_record_alone_has_its_own_time() -> None:
    assert seen(row(1, None, 0, 50, by_server=True)) == [(1, 0, 50)]


def test_a_ring_of_parents_ends() -> None:
    assert {span for span, _, _ in seen(row(1, 2, 0, 10), row(2, 1, 0, 10), row(3, 3, 0, 10))} == {1, 2, 3}


def test_a_deep_trace_is_no_deeper_than_python_can_go() -> None:
    rows = [row(at, at - 1 if at else None, at, 10_000 - at) for at in range(3_000)]
    bars = waterfall(rows)
    assert bars[-1].depth == 2_999 and sum(bar.critical_ns for bar in bars) == 10_000


@settings(deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-20, 120), st.integers(0, 80)), max_size=30))
def test_the_critical_path_is_the_whole_of_the_trace_once(calls: list[tuple[int, int, int]]) -> None:
    rows = [row(0, None, 0, 100)]
    rows += [
        row(at, min(above, at - 1), start, start + taken) for at, (above, start, taken) in enumerate(calls, 1)
    ]
    bars = waterfall(rows)
    assert len(bars) == len(rows)
    segments = sorted(segment for bar in bars for segment in bar.critical)
    assert sum(end - start for start, end in segments) == 100
    assert segments[0][0] == 0 and segments[-1][1] == 100
    assert all(one[1] == other[0] for one, other in pairwise(segments))


def test_one_that_another_machine_s_clock_puts_outside_is_waited_for_where_it_is_drawn() -> None:
    caller = row(1, None, 0, 50) | {"client_machine": "web"}
    callee = row(2, 1, 60, 90, by_server=True) | {"server_machine": "shop"}
    bars = {bar.row["span_id"]: bar for bar in waterfall([caller, callee])}
    assert (bars[1].critical_ns, bars[2].critical) == (20, [(60, 90)])
