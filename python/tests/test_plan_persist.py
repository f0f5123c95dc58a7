"""persist: the forecast on calls whose truth is known, and where it must promise nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import ANSWER_NS, answered, one_method, paced, staged

from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import Fit, fit
from scotfree.study.plan.price import Effect, Price, Refused, price
from scotfree.study.plan.remedies import persist


@pytest.fixture(scope="module")
def fitted() -> Fit:
    baseline = one_method(stages=staged(800), start_ns=paced(800))
    return fit(baseline, one_method(**answered(800)))


def priced(calls: Calls, context: Context) -> Price:
    effect = persist.forecast(calls, context)
    assert isinstance(effect, Effect)
    return price(persist.NAME, persist.IS_OURS, calls, effect)


def test_what_is_left_is_what_the_device_leaves(fitted: Fit) -> None:
    calls = one_method(stages=staged(1_000, app_ns=400_000, seed=9), start_ns=paced(1_000))
    found = priced(calls, Context(updates=("*",), persist=fitted)).at(0.95)
    # Three stages of 10 us are kept, A is 30 us; all within a tenth.
    assert found.forecast_ns == pytest.approx(3 * 10_000 + ANSWER_NS, rel=0.1)
    assert found.now_ns == pytest.approx(480_000, rel=0.1)
    assert found.pays and found.low_ns <= found.forecast_ns <= found.high_ns


def test_a_saturated_server_gains_nothing(fitted: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    # A call every 20 us of 30 us of work: each waits for all before it.
    count = 1_000
    stages = staged(count, app_ns=30_000)
    stages[:, 3] = np.arange(count) * 10_000
    calls = one_method(stages=stages, start_ns=paced(count, 20_000))
    found = priced(calls, Context(updates=("*",), persist=fitted))
    assert not found.pays and found.at(0.95).forecast_ns == found.at(0.95).now_ns
    assert "saturated" in found.notes[0]
    # The planted fault: a forecast that does not look at the load promises what no caller would get.
    with monkeypatch.context() as planted:
        planted.setattr(persist, "_gainless", lambda *_: None)
        assert priced(calls, Context(updates=("*",), persist=fitted)).pays
    # The same stages at a rate that the server sustains are forecast to gain: the rule looks at the load.
    calm = one_method(stages=staged(count, app_ns=30_000), start_ns=paced(count))
    assert priced(calm, Context(updates=("*",), persist=fitted)).pays


def test_a_read_is_not_acknowledged_early(fitted: Fit) -> None:
    calls = one_method(stages=staged(200), start_ns=paced(200))
    refused = persist.forecast(calls, Context(persist=fitted))
    assert isinstance(refused, Refused) and "read" in refused.reason
    assert isinstance(persist.forecast(calls, Context(updates=("Cart.*",), persist=fitted)), Effect)


def test_where_processors_are_shared_some_calls_wait_for_the_servers_work(fitted: Fit) -> None:
    calls = one_method(stages=staged(1_000, app_ns=400_000, seed=9), start_ns=paced(1_000))
    context = Context(updates=("*",), persist=replace(fitted, processors=2))
    found = priced(calls, replace(context, is_one_machine=True))
    # Half are through after 60 us; the others after the work, 2 x 10 us before it, 2 on the way, and a turn.
    assert found.at(0.95).forecast_ns == pytest.approx(450_000, rel=0.1)
    assert found.at(0.50).low_ns < 70_000
    apart = priced(calls, replace(context, is_one_machine=False))
    assert apart.at(0.95).forecast_ns == pytest.approx(60_000, rel=0.1)
    # With many processors few wait: less than one in twenty does not move the P95.
    many = priced(calls, Context(updates=("*",), persist=replace(fitted, processors=64), is_one_machine=True))
    assert many.at(0.95).forecast_ns == pytest.approx(60_000, rel=0.1)


@given(offset=st.integers(0, 10_000_000), factor=st.floats(1.0, 50.0))
@settings(max_examples=20, deadline=None)
def test_the_servers_time_does_not_matter_where_it_is_not_saturated(
    fitted: Fit, offset: int, factor: float
) -> None:
    stages = staged(300, app_ns=20_000, seed=3)
    slow = stages.copy()
    slow[:, 4] = slow[:, 4] * factor
    context = Context(updates=("*",), persist=fitted, is_one_machine=False)
    one, other = (
        priced(one_method(stages=each, start_ns=offset + paced(300, 100_000_000)), context)
        for each in (stages, slow)
    )
    assert one.at(0.95).forecast_ns == other.at(0.95).forecast_ns
