"""Offsets of clocks from the least gaps: the truth lies inside the interval, and a split inside its bound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sides import by_id, client, merged, reasons, server

from scotfree.study.ingest import clocks

Message = tuple[bool, int, int]
MESSAGES = st.lists(
    st.tuples(st.booleans(), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=20
)


def _gaps(messages: list[Message], theta: int) -> pa.Table:
    """Calls between machines 3 and 8, forth or back; the clock of 8 is theta ahead of that of 3."""
    ahead = [theta if forth else -theta for forth, _, _ in messages]
    return pa.table(
        {
            "client_place": [3 if forth else 8 for forth, _, _ in messages],
            "server_place": [8 if forth else 3 for forth, _, _ in messages],
            "request_gap_ns": [way + by for (_, way, _), by in zip(messages, ahead, strict=True)],
            "response_gap_ns": [way - by for (_, _, way), by in zip(messages, ahead, strict=True)],
        }
    )


def _misses(messages: list[Message], theta: int, found: clocks.Offsets) -> list[int]:
    """By how much each call's request is told wrong beyond its bound, of those that are told."""
    gaps = _gaps(messages, theta)
    low, high, known = found.of(gaps["client_place"].to_numpy(), gaps["server_place"].to_numpy())
    tax = np.array([there + back for _, there, back in messages])
    request, bound, fits = clocks.split(tax, gaps["request_gap_ns"].to_numpy(), low, high)
    truth = np.array([there for _, there, _ in messages])
    return list((np.abs(request - truth) - bound)[known & fits])


@settings(deadline=None)
@given(MESSAGES, st.integers(-(10**12), 10**12))
def test_the_true_offset_is_in_the_interval_and_every_split_within_its_bound(
    messages: list[Message], theta: int
) -> None:
    found = clocks.offsets(_gaps(messages, theta))
    assert found.low[0] <= theta <= found.high[0]
    assert all(miss <= 0 for miss in _misses(messages, theta, found))


def test_an_offset_that_is_wrong_is_found() -> None:
    messages = [(True, 10, 20), (False, 15, 5), (True, 500, 400)]
    right = clocks.offsets(_gaps(messages, 1000))
    assert all(miss <= 0 for miss in _misses(messages, 1000, right))
    wrong = clocks.Offsets(right.pairs, -right.high, -right.low)
    assert any(miss > 0 for miss in _misses(messages, 1000, wrong))


def test_empty_intervals_and_strangers_tell_nothing() -> None:
    drifting = clocks.offsets(
        pa.table(
            {
                "client_place": [1, 1],
                "server_place": [2, 2],
                "request_gap_ns": [5, 900],
                "response_gap_ns": [800, -10],
            }
        )
    )
    places = np.array([1, 1, 4, -7]), np.array([2, 9, 4, -7])
    assert drifting.of(*places)[2].tolist() == [False, False, True, False]


@pytest.mark.parametrize("ahead", [0, 7 * 10**9, -7 * 10**9])
def test_sides_of_calls_add_up_to_the_tax(tmp_path: Path, ahead: int) -> None:
    rows = []
    # The fastest messages take 10 ns there and 20 back; the last call 5000 and 3000.
    for trace, (there, back) in enumerate([(10, 600), (700, 20), (5000, 3000)], 1):
        total = there + 100 + back
        rows.append(client(1, trace=trace, machine="a", duration_ns=total))
        rows.append(server(2, 1, trace=trace, machine="b", at=there + ahead, duration_ns=100))
    store = merged(tmp_path, rows)
    told = [call for call in by_id(store).values() if "request_side_ns" in call]
    assert [call["total_ns"] for call in told] == [8100]
    call = told[0]
    assert call["request_side_ns"] + call["server_app_ns"] + call["response_side_ns"] == 8100
    # Theta is known within 10 + 20 ns.
    assert call["clock_bound_ns"] == 15
    assert abs(call["request_side_ns"] - 5000) <= 15


def test_a_split_that_clocks_do_not_allow_is_refused_and_counted(tmp_path: Path) -> None:
    store = merged(tmp_path, [client(1, machine="a"), server(2, 1, machine="b", at=300, duration_ns=400)])
    assert "request_side_ns" not in by_id(store)[1]
    assert reasons(store) == {"clocks are not known well enough: request and response side are not told apart": 1}


def test_one_machine_has_one_clock(tmp_path: Path) -> None:
    call = by_id(merged(tmp_path, [client(1, machine="a"), server(2, 1, machine="a", at=250, duration_ns=400)]))[1]
    assert (call["request_side_ns"], call["response_side_ns"], call["clock_bound_ns"]) == (250, 350, 0)
