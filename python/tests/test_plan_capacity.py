"""capacity: the thesis' own numbers, and rules that hold for any load."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import one_method, paced

from scotfree.study.plan import cli
from scotfree.study.plan.capacity import Need, capacity, flags
from scotfree.study.plan.commands.capacity import measured
from scotfree.study.trouble import StudyError


def test_the_thesis_numbers() -> None:
    # Equations 3.1 and 3.2: 500 us and 100 ns at 10 Gbit/s are 5 Mbit and 1 kbit; 3.7: 10 kbit at 100 Gbit/s.
    found = capacity(Need(1_000, 500_000, 500_000, 100, link_gbit_per_s=10, rtt_ns=500_000))
    assert (found.in_flight_bytes_max, found.queue_bytes) == (5_000_000 // 8, 1_000 // 8)
    assert capacity(Need(1_000, 500_000, 500_000, 100, link_gbit_per_s=100)).queue_bytes == 1_250


@given(
    rate=st.floats(0.1, 1e7), stable=st.floats(1e3, 1e10), tail=st.floats(1, 50), sessions=st.integers(1, 1_000)
)
@settings(max_examples=100, deadline=None)
def test_the_log_holds_what_is_not_yet_stable(rate: float, stable: float, tail: float, sessions: int) -> None:
    found = capacity(Need(rate, stable, stable * tail, 100, sessions))
    assert found.slots >= found.slots_mean * tail >= found.slots_mean
    assert found.slots >= found.window * sessions
    assert found.window & (found.window - 1) == 0
    assert found.log_bytes == found.slots * 100


def test_a_random_minute_of_arrivals_fits() -> None:
    need = Need(5_000, 2e6, 2e6, 100)
    arrivals = np.cumsum(np.random.default_rng(5).exponential(1e9 / need.rate_per_s, 300_000))
    outstanding = np.arange(len(arrivals)) - np.searchsorted(arrivals, arrivals - need.stable_ns) + 1
    assert np.mean(outstanding) == pytest.approx(capacity(need).slots_mean, rel=0.15)
    assert capacity(need).slots_mean < outstanding.max() <= capacity(need).slots


def test_rate_and_time_are_read_off_the_updates() -> None:
    calls = one_method(total_ns=np.full(1_000, 400_000), start_ns=paced(1_000), req_bytes=np.full(1_000, 300))
    found = measured([calls, calls])
    assert found.rate_per_s == pytest.approx(2_000, rel=0.01)
    assert (found.stable_ns, found.stable_p99_ns, found.bytes) == (400_000, 400_000, 300)


def test_the_flags_that_follow(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "capacity",
        "--rate",
        "20000",
        "--time-to-stable",
        "2ms",
        "--bytes",
        "512",
        "--sessions",
        "4",
        "--json",
    ]
    assert cli.main(words) == 0
    found = json.loads(capsys.readouterr().out)
    # 40 a second's share of each session at the P99 of four means, and six deviations: 78, so 128 each.
    assert found["capacity"]["window"] == 128
    assert found["flags"][1] == "--plane xdp --slots 512 --window-max 128 --sessions-max 4"
    # 8 KiB for each of 4 x 129: one more than its window has every session.
    assert found["flags"][0].startswith("--log ram:/dev/shm/scot.log:5M ")
    large = Need(1, 1, 1, 2_000)
    assert len(flags(large, capacity(large))) == 1
    assert cli.main(["capacity", "--rate", "1"]) == 2


def test_what_cannot_be_is_refused() -> None:
    for need in (Need(0, 1, 1, 1), Need(1, 2, 1, 1), Need(1, 1, 1, 0)):
        with pytest.raises(StudyError):
            capacity(need)
    with pytest.raises(StudyError, match="a slot takes"):
        flags(Need(1, 1, 1, 5_000), capacity(Need(1, 1, 1, 5_000)))
