"""persist: the forecast on calls whose truth is known, and where it must promise nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import ANSWER_NS, INTERVAL_NS, answered, one_method, paced, staged

from scotfree.study import schema
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import Fit, fit
from scotfree.study.plan.load import Load
from scotfree.study.plan.price import Effect, Price, Refused, price
from scotfree.study.plan.remedies import persist


@pytest.fixture(scope="module")
def fitted() -> Fit:
    baseline = one_method(stages=staged(800), start_ns=paced(800))
    return fit([(baseline, one_method(**answered(800)))])


def priced(calls: Calls, context: Context) -> Price:
    effect = persist.forecast(calls, context)
    assert isinstance(effect, Effect)
    return price(persist.NAME, persist.IS_OURS, calls, effect)


def test_what_is_left_is_what_the_device_leaves(fitted: Fit) -> None:
    calls = one_method(stages=staged(1_000, app_ns=400_000, seed=9), start_ns=paced(1_000))
    found = priced(calls, Context(updates=("*",), fits={"persist": fitted})).at(0.95)
    # Two stages of 10 us are kept, A is 30 us and a wake-up of 10; all within a tenth.
    assert found.forecast_ns == pytest.approx(3 * 10_000 + ANSWER_NS, rel=0.1)
    assert found.now_ns == pytest.approx(480_000, rel=0.1)
    assert found.pays and found.low_ns <= found.forecast_ns <= found.high_ns


def test_a_saturated_server_gains_nothing(fitted: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    # A call every 20 us of 30 us of work: each waits for all before it.
    count = 1_000
    stages = staged(count, app_ns=30_000)
    stages[:, 3] = np.arange(count) * 10_000
    calls = one_method(stages=stages, start_ns=paced(count, 20_000))
    context = Context(updates=("*",), fits={"persist": fitted})
    found = priced(calls, context)
    assert not found.pays and found.saved_share == pytest.approx(0.0, abs=0.01)
    assert "saturated" in found.notes[0]
    # The planted fault: a forecast that does not look at the load promises what no caller would get.
    with monkeypatch.context() as planted:
        planted.setattr(Load, "is_saturated", False)
        assert priced(calls, context).pays
    # The same stages at a rate that the server sustains are forecast to gain: the rule looks at the load.
    calm = one_method(stages=staged(count, app_ns=30_000), start_ns=paced(count))
    assert priced(calm, context).pays


def _queued(outstanding: int, count: int = 4_000) -> Calls:
    """A server that works 100 us on each, and so many callers without a pause."""
    stages = staged(count, app_ns=100_000)
    own = stages.sum(axis=1) - stages[:, 3]
    stages[:, 3] = outstanding * 100_000 - own
    return one_method(stages=stages, start_ns=paced(count, 100_000))


def test_of_sampled_calls_the_wait_at_the_server_tells_that_it_is_saturated(fitted: Fit) -> None:
    # The server works half of the time that passes between two: the rest is its stack's, which no stage says.
    stages = staged(1_000, app_ns=50_000, server_recv_queue_ns=600_000)
    sampled = {"start_ns": paced(1_000, 400_000), "sample_weight": [4.0] * 1_000}
    context = Context(updates=("*",), fits={"persist": fitted}, stable_every_ns=0.0)
    found = priced(one_method(stages=stages, **sampled), context)
    assert found.harms and not found.pays
    assert "(6.0 requests wait at the server on average)" in found.notes[0]
    # At a rate of a fiftieth as many wait as long for something else, and the remedy pays.
    assert priced(one_method(stages=stages, **sampled | {"start_ns": paced(1_000, 20_000_000)}), context).pays


def test_where_a_full_window_opens_for_many_the_tail_waits_for_all_of_them(fitted: Fit) -> None:
    context = Context(updates=("*",), fits={"persist": fitted}, stable_every_ns=0.0)
    found = priced(_queued(32), context)
    assert found.harms and not found.pays
    # The mean stays, 3.2 ms; of 256 that a turn takes 32 wait, so these for (3.2 ms - 224/256 of 60 us) x 256/32.
    tail = found.at(0.95)
    assert tail.now_ns == pytest.approx(3.2e6, rel=0.02)
    assert tail.forecast_ns == pytest.approx(25.2e6, rel=0.05)
    assert tail.low_ns < 22e6 and tail.high_ns > 28e6
    assert found.at(0.50).forecast_ns < 0.1e6 and found.saved_share == pytest.approx(0.0, abs=0.01)
    assert "of 256 calls 32 wait so long" in found.notes[0]


def test_a_window_opens_when_the_server_has_looked_what_is_stable(fitted: Fit) -> None:
    # 50 ms of 100 us each: 500 updates, of which 32 wait for 50 ms.
    found = priced(_queued(32), Context(updates=("*",), fits={"persist": fitted}))
    assert found.at(0.95).forecast_ns == pytest.approx(49.1e6, rel=0.05)


def test_where_more_wait_than_a_window_opens_for_nothing_is_gained_or_lost(fitted: Fit) -> None:
    found = priced(_queued(300), Context(updates=("*",), fits={"persist": fitted}, stable_every_ns=0.0))
    assert not found.pays and not found.harms
    assert found.at(0.95).forecast_ns == found.at(0.95).now_ns and "no gain" in found.notes[0]


def test_a_caller_who_comes_back_at_times_of_its_own_gains_nothing(fitted: Fit) -> None:
    context = Context(updates=("*",), fits={"persist": fitted})
    stages = staged(1_000, app_ns=80_000)
    received = schema.STAGES.index("client_recv_queue")
    # Whatever comes before, half a millisecond after the call.
    stages[:, received] = 500_000 - (stages.sum(axis=1) - stages[:, received])
    found = priced(one_method(stages=stages, start_ns=paced(1_000)), context)
    assert found.at(0.50).forecast_ns == found.at(0.50).now_ns == pytest.approx(500_000)


def test_times_of_ones_own_are_seen_however_much_they_differ(fitted: Fit) -> None:
    context = Context(updates=("*",), fits={"persist": fitted})
    stages = staged(2_000, app_ns=80_000)
    received = schema.STAGES.index("client_recv_queue")
    rng = np.random.default_rng(1)
    stages[:, schema.APP] = rng.integers(30_000, 130_000, len(stages))
    answered = stages.sum(axis=1) - stages[:, received]
    own = rng.integers(150_000, 600_000, len(stages))
    # Where the answer comes too late the caller waits for it, and is woken.
    stages[:, received] = np.maximum(own - answered, 10_000)
    found = priced(one_method(stages=stages, start_ns=paced(2_000)), context)
    for p in (0.50, 0.95, 0.99):
        assert found.at(p).forecast_ns == pytest.approx(found.at(p).now_ns, rel=0.02)
    # The same waits behind any answer are something else that these callers do: an answer is seen as much sooner.
    stages[:, received] = own - 100_000
    busy = priced(one_method(stages=stages, start_ns=paced(2_000)), context)
    assert busy.at(0.50).forecast_ns < busy.at(0.50).now_ns - 50_000


def test_a_server_that_works_is_in_the_way_as_far_as_the_fit_knows() -> None:
    slower = 2 * ANSWER_NS
    quick = (one_method(stages=staged(800), start_ns=paced(800)), one_method(**answered(800)))
    works = one_method(stages=staged(800, app_ns=200_000), start_ns=paced(800))
    fitted = fit([(works, one_method(**answered(800, slower))), quick])
    assert [round(each.work_ns, -4) for each in fitted.answers] == [50_000, 200_000]
    context = Context(updates=("*",), fits={"persist": fitted})
    every = INTERVAL_NS // 2
    for app_ns, answer_ns in ((30_000, ANSWER_NS), (100_000, 1.5 * ANSWER_NS), (350_000, slower)):
        found = priced(one_method(stages=staged(800, app_ns=app_ns), start_ns=paced(800, every)), context)
        assert found.at(0.50).forecast_ns == pytest.approx(3 * 10_000 + answer_ns, rel=0.05)
    # After a rest that is longer than what was tried with it, it is in nobody's way.
    rested = priced(one_method(stages=staged(800, app_ns=350_000), start_ns=paced(800, 3 * every)), context)
    assert rested.at(0.50).forecast_ns == pytest.approx(3 * 10_000 + ANSWER_NS, rel=0.05)


def test_the_pauses_of_a_fit_are_those_of_all_its_servers() -> None:
    rare = {**answered(800), "start_ns": paced(800, 20 * INTERVAL_NS)}
    quick = (one_method(stages=staged(800), start_ns=paced(800)), one_method(**rare))
    works = one_method(stages=staged(800, app_ns=200_000), start_ns=paced(800))
    fitted = fit([quick, (works, one_method(**answered(800)))])
    calls = one_method(stages=staged(800), start_ns=paced(800, 15 * INTERVAL_NS))
    found = priced(calls, Context(updates=("*",), fits={"persist": fitted}))
    assert not any("after pauses" in note for note in found.notes)


def test_a_read_is_not_acknowledged_early(fitted: Fit) -> None:
    calls = one_method(stages=staged(200), start_ns=paced(200))
    refused = persist.forecast(calls, Context(fits={"persist": fitted}))
    assert isinstance(refused, Refused) and "read" in refused.reason
    assert isinstance(persist.forecast(calls, Context(updates=("Cart.*",), fits={"persist": fitted})), Effect)


def test_what_a_busy_caller_takes_beyond_a_wake_up_is_kept(fitted: Fit) -> None:
    context = Context(updates=("*",), fits={"persist": fitted})
    calls = one_method(stages=staged(1_000, client_recv_queue_ns=500_000), start_ns=paced(1_000))
    found = priced(calls, context)
    # A wake-up of 11 us is in A.
    assert found.at(0.50).forecast_ns == pytest.approx(2 * 10_000 + ANSWER_NS + 10_000 + 489_000, rel=0.02)
    assert any("longer than a wake-up" in note for note in found.notes)
    idle = priced(one_method(stages=staged(1_000), start_ns=paced(1_000)), context)
    assert not any("wake-up" in note for note in idle.notes)


def test_wires_longer_than_the_fits_are_kept_but_on_one_machine(fitted: Fit) -> None:
    calls = one_method(stages=staged(1_000, request_wire_ns=200_000), start_ns=paced(1_000))
    apart, together = (
        priced(calls, Context(updates=("*",), fits={"persist": fitted}, is_one_machine=is_one)).at(0.95)
        for is_one in (False, True)
    )
    # A tenth up or down, as each call's wires are.
    assert apart.forecast_ns - together.forecast_ns == pytest.approx(190_000, rel=0.1)


def test_the_few_calls_that_go_a_long_way_keep_it(fitted: Fit) -> None:
    stages = staged(1_000)
    far = np.arange(1_000) % 50 == 0
    stages[far, schema.STAGES.index("request_wire")] = 120_000_000
    found = priced(
        one_method(stages=stages, start_ns=paced(1_000, 10**9)), Context(updates=("*",), fits={"persist": fitted})
    )
    # One call in fifty crosses the world: the P99 stays what it is, the median gains.
    assert found.at(0.99).forecast_ns > 119_000_000
    assert found.at(0.50).forecast_ns < found.at(0.50).now_ns


@given(offset=st.integers(0, 10_000_000), factor=st.floats(1.0, 50.0))
@settings(max_examples=20, deadline=None)
def test_the_servers_time_does_not_matter_where_it_is_not_saturated(
    fitted: Fit, offset: int, factor: float
) -> None:
    stages = staged(300, app_ns=20_000, seed=3)
    slow = stages.copy()
    slow[:, 4] = slow[:, 4] * factor
    context = Context(updates=("*",), fits={"persist": fitted}, is_one_machine=False)
    one, other = (
        priced(one_method(stages=each, start_ns=offset + paced(300, 100_000_000)), context)
        for each in (stages, slow)
    )
    assert one.at(0.95).forecast_ns == other.at(0.95).forecast_ns
