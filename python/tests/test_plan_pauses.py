"""Pauses before calls: who rests, who is paced, and what a remedy leaves of the rest."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from planned import ANSWER_NS, answered, one_method, paced, staged
from small_store import spans, study_of

from scotfree.study.plan import early, pauses
from scotfree.study.plan.calls import Calls, Floats, methods
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import Fit, _rates, fit, read, write
from scotfree.study.plan.price import Effect, price
from scotfree.study.plan.remedies import persist
from scotfree.study.trouble import StudyError

# A caller that has rested a millisecond is woken so much later.
SLOW_NS = 90_000
COUNT = 800


def of(starts: list[int], totals: list[int], machines: list[str] | None = None, **columns: object) -> Calls:
    named = {} if machines is None else {"client_machine": machines}
    return one_method(start_ns=np.array(starts), total_ns=np.array(totals), **named, **columns)


def test_a_pause_is_the_time_in_which_nothing_of_the_machine_is_under_way() -> None:
    # The second call is the longest: the third begins within it, the fourth after its end.
    one = of([0, 100, 200, 1_000], [50, 600, 10, 10])
    assert pauses.before(one).tolist() == [50, 50, 0, 300]
    apart = of([0, 100, 200, 1_000], [50, 600, 10, 10], ["a", "b", "a", "b"])
    assert pauses.before(apart).tolist() == [225, 225, 150, 300]


def test_a_pause_ends_what_its_caller_calls_otherwise_as_well(tmp_path: Path) -> None:
    """A SET every millisecond of 100 us, behind each a GET of 700 us: between two the caller rests 200 us."""
    count = 120
    starts = np.arange(count) * 1_000_000
    sets, gets = (["SET"] * count, ["GET"] * count)
    rows = spans(
        method=sets + gets + sets,
        service=["a"] * count + ["a"] * count + ["b"] * count,
        # Those of another client, who is busy all the time, are no matter.
        client_service=["client"] * (2 * count) + ["other"] * count,
        start_ns=np.concatenate([starts, starts + 100_000, starts]),
        total_ns=[100_000] * count + [700_000] * count + [990_000] * count,
    )
    found = {(calls.service, calls.method): calls for calls in methods(study_of(tmp_path, rows), 3)}
    assert set(pauses.before(found["a", "SET"]).tolist()) == {200_000.0}
    assert set(pauses.before(found["a", "GET"]).tolist()) == {0.0}
    assert set(pauses.before(found["b", "SET"]).tolist()) == {10_000.0}


def test_sampled_calls_have_the_pause_of_their_rate() -> None:
    one = of([0, 1_000, 2_000, 3_000], [100] * 4, sample_weight=[5.0] * 4)
    # 3,100 ns of 20 calls.
    assert pauses.before(one).tolist() == [55] * 4


def test_paced_callers_keep_their_pace_and_the_others_their_rest() -> None:
    rng = np.random.default_rng(4)
    totals = rng.integers(100, 500, 200)
    early = np.full(200, 50.0)
    at_a_pace = of((np.arange(200) * 1_000).tolist(), totals.tolist())
    assert pauses.before_if(at_a_pace, early)[1:].tolist() == [950.0] * 199
    rests = np.concatenate([[0], np.cumsum(totals + 300)[:-1]])
    with_rests = of(rests.tolist(), totals.tolist())
    assert pauses.before_if(with_rests, early).tolist() == [300.0] * 200


def at_two_rates() -> Calls:
    """One behind the other, then one each millisecond, in turns; after the rest A is three times as long."""
    turns = []
    for turn, (interval, answer) in enumerate([(70_000, ANSWER_NS), (1_000_000, SLOW_NS)] * 8):
        columns = answered(COUNT // 8, answer, seed=turn)
        turns.append(columns | {"start_ns": paced(COUNT // 8, interval) + turn * 10**9})
    joined = {name: np.concatenate([np.asarray(one[name]) for one in turns]) for name in turns[0]}
    return one_method(**{name: pa.array(values) for name, values in joined.items()})


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit([(one_method(stages=staged(COUNT), start_ns=paced(COUNT)), at_two_rates())])


def forecast_ns(fitted: Fit, interval_ns: int | None) -> float:
    """The median of calls at a pace, or one behind the other."""
    stages = staged(1_000, app_ns=20_000, seed=9)
    behind = np.concatenate([[0], np.cumsum(stages.sum(axis=1))[:-1]])
    calls = one_method(stages=stages, start_ns=behind if interval_ns is None else paced(1_000, interval_ns))
    effect = persist.forecast(calls, Context(updates=("*",), fits={"persist": fitted}))
    assert isinstance(effect, Effect)
    return price(persist.NAME, persist.IS_OURS, calls, effect).at(0.50).forecast_ns


def test_the_answer_is_the_one_after_such_a_pause(fitted: Fit) -> None:
    assert [round(each.median_ns, -4) for each in fitted.answers] == [ANSWER_NS + 10_000, SLOW_NS + 10_000]
    kept_and_woken = 3 * 10_000
    # Of both rates, beyond them, and between them.
    assert forecast_ns(fitted, None) == pytest.approx(ANSWER_NS + kept_and_woken, rel=0.05)
    assert forecast_ns(fitted, 1_000_000) == pytest.approx(SLOW_NS + kept_and_woken, rel=0.05)
    assert forecast_ns(fitted, 50_000_000) == pytest.approx(SLOW_NS + kept_and_woken, rel=0.05)
    assert ANSWER_NS * 1.4 < forecast_ns(fitted, 250_000) - kept_and_woken < SLOW_NS * 0.9


def test_a_planted_forecast_that_knows_no_pauses_is_found(fitted: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(calls: Calls, totals: Floats) -> Floats:
        return np.zeros(len(calls))

    monkeypatch.setattr(early, "before_if", none)
    assert forecast_ns(fitted, 1_000_000) < SLOW_NS * 0.9


def test_pauses_beyond_the_fits_are_said(fitted: Fit) -> None:
    for interval, is_beyond in ((1_000_000, False), (50_000_000, True)):
        calls = one_method(stages=staged(400), start_ns=paced(400, interval))
        effect = persist.forecast(calls, Context(updates=("*",), fits={"persist": fitted}))
        assert isinstance(effect, Effect)
        assert any("these come after 49.9 ms" in note for note in effect.notes) == is_beyond


def test_a_fit_of_another_version_is_told_from_none(tmp_path: Path, fitted: Fit) -> None:
    path = tmp_path / "persist.json"
    write(fitted, path)
    # The version before had other fields, too.
    older = {**json.loads(path.read_text()), "version": 2, "parts": []}
    del older["answers"]
    path.write_text(json.dumps(older))
    with pytest.raises(StudyError, match="it is of version 2, this reads 4; make it anew"):
        read(path)


def test_rates_are_told_apart_by_what_is_empty_between_them() -> None:
    rng = np.random.default_rng(6)
    quick, slow = rng.uniform(100_000, 300_000, 500), rng.uniform(3_000_000, 3_900_000, 300)
    # A few pauses between turns stand in between and beyond.
    stray = np.array([700_000.0, 1_500_000.0, 9e9])
    rates = _rates(np.concatenate([quick, slow, stray]))
    # One rate, whatever its spread: a boundary within it would tell quick moments from slow ones.
    assert rates.tolist() == [0] * 500 + [1] * 300 + [-1] * 3
