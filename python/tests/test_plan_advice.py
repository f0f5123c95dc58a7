"""Advice that needs none of our code: each against calls of which the answer is known, and its refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planned import one_method, paced, staged
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.plan import registry, text
from scotfree.study.plan.calls import Calls, Floats, methods
from scotfree.study.plan.context import Context
from scotfree.study.plan.forecasts import Plan, make
from scotfree.study.plan.price import Effect, Refused, price
from scotfree.study.plan.remedies import (
    co_locate,
    compress,
    compression_off,
    hedge_budget,
    negative_cache,
    rebalance,
)

COUNT = 400
CONTEXT = Context()


def totals(module: Any, calls: Calls, context: Context = CONTEXT) -> Floats:
    effect = module.forecast(calls, context)
    assert isinstance(effect, Effect), effect
    return effect.totals[0]


def refusal(module: Any, calls: Calls) -> str:
    effect = module.forecast(calls, CONTEXT)
    assert isinstance(effect, Refused), effect
    return effect.reason


def test_co_located_calls_take_the_wires_of_those_within_a_cluster() -> None:
    stages = staged(COUNT)
    is_far = np.arange(COUNT) % 2 == 0
    stages[is_far, 2] += 5_000_000
    calls = one_method(
        stages=stages,
        client_cluster=np.where(is_far, "a", "b").tolist(),
        server_cluster=["b"] * COUNT,
    )
    found = totals(co_locate, calls)
    assert found[is_far].max() < 200_000 < calls.total[is_far].min()
    assert (found[~is_far] == calls.total[~is_far]).all()
    assert "within a cluster" in refusal(co_locate, calls.only(~is_far))
    assert "30 within one" in refusal(co_locate, calls.only(is_far))
    assert "not known" in refusal(co_locate, one_method(stages=stages))


def test_queues_of_loaded_machines_become_those_of_the_median_one() -> None:
    stages = staged(COUNT)
    machine = np.arange(COUNT) % 4
    stages[:, 3] = np.array([10_000, 20_000, 30_000, 900_000])[machine]
    names = [f"machine-{index}" for index in machine]
    calls = one_method(stages=stages, server_machine=names)
    found = totals(rebalance, calls)
    # Of four the second is the median one: machines 2 and 3 take its queue, 0 and 1 keep theirs.
    saved = calls.total - found
    # What the median machine's send queue, which is not even, adds or saves is some 2 us.
    for index, expected in enumerate((0, 0, 10_000, 880_000)):
        assert saved[machine == index] == pytest.approx(expected, abs=2_500)
    assert "machines" in refusal(rebalance, one_method(stages=stages))
    assert "machines" in refusal(rebalance, calls.only(machine < 2))


def test_compression_weighs_bytes_on_the_wire_against_the_work() -> None:
    stages, bytes_ = staged(COUNT), np.arange(COUNT) * 1_000
    # 8 ns a byte: 1 Gbit/s.
    stages[:, 2] = 20_000 + 8 * bytes_
    calls = one_method(stages=stages, req_bytes=bytes_)
    half = Context(compression_ratio=2.0, compress_ns_per_byte=1.0)
    assert calls.total - totals(compress, calls, half) == pytest.approx(bytes_ * (8 / 2 - 1), abs=1)
    # On a faster wire the same work costs more than it saves, and the price says so.
    dear = Context(compression_ratio=2.0, compress_ns_per_byte=5.0)
    effect = compress.forecast(calls, dear)
    assert isinstance(effect, Effect) and not price("compress", False, calls, effect).pays
    assert "sizes that differ" in refusal(compress, one_method(stages=stages, req_bytes=np.full(COUNT, 100)))


def test_what_harms_is_said_as_plainly_as_what_pays(tmp_path: Path) -> None:
    stages, bytes_ = staged(COUNT), np.full(COUNT, 50_000)
    bytes_[::2] = 10_000
    # A tenth of a ns a byte: squeezing costs far more than it saves.
    stages[:, 2] = 20_000 + bytes_ // 10
    study = study_of(tmp_path, spans(stages=stages, req_bytes=bytes_, start_ns=paced(COUNT)))
    known = {
        "compress": registry.Entry("compress", "x", (), (), ()),
        "ring": registry.Entry("ring", "of memory", (), (), ()),
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(registry, "entries", lambda: known)
        plan = make(study, Context(compress_ns_per_byte=3.0), 20, [compress])
    (one,) = plan.prices
    assert one.harms and not one.pays and plan.to_json()["prices"][0]["harms"]
    found = text.plan(plan)
    assert found.startswith(text.NONE_PAYS)
    harm = re.search(
        r"^compress would do harm: it takes the P(\d+) of .+ to .+, (.+ later \(.+ to .+ µs\))\.$", found, re.M
    )
    # The gain's own interval, in the sentence and in the table: all of it is later.
    assert harm and f"  {harm[2]}  " in found
    assert "ring: not priced yet: there is no forecast of it (of memory)." in found


def test_what_nobody_would_see_is_no_harm_and_no_contradiction() -> None:
    """All calls take 273 ns more: certain, and hidden in a forecast that spreads by milliseconds."""
    calls = one_method(total_ns=np.linspace(80_000_000, 160_000_000, COUNT).astype(np.int64))
    later = price("compress", False, calls, Effect((calls.total + 273,)))
    assert all(one.loses for one in later.percentiles) and not later.harms and not later.pays
    plan = Plan([later], [], 1, 1.0)
    found = text.plan(plan)
    assert "would do harm" not in found and "273 ns later (273 to 273 ns)" in found
    # What loses a tenth does; what gains a little is said with what it gains.
    assert price("compress", False, calls, Effect((calls.total * 1.11,))).harms
    sooner = text.plan(Plan([price("compress", False, calls, Effect((calls.total - 273,)))], [], 1, 1.0))
    assert ", 273 ns sooner (273 to 273 ns); " in sooner


def test_what_only_moves_time_to_the_tail_does_not_pay_though_it_harms_none() -> None:
    calls = one_method(total_ns=np.linspace(80_000_000, 160_000_000, COUNT).astype(np.int64))
    rank = np.arange(COUNT) / COUNT
    moved = np.where(rank < 0.7, -3_000_000.0, np.where(rank > 0.9, 9_000_000.0, 4_000_000.0))
    found = price("x", False, calls, Effect((calls.total + moved,)))
    assert found.at(0.50).pays and found.at(0.99).loses and not found.harms and not found.pays


def test_a_handful_of_bytes_says_nothing_of_what_a_byte_takes() -> None:
    """The median of 0 and 7 bytes may be 0, which any spread is a multiple of."""
    stages = staged(COUNT, request_wire=10_000_000)
    few = np.where(np.arange(COUNT) % 5 < 3, 0, 7)
    assert "differ by 1,000 bytes" in refusal(compress, one_method(stages=stages, req_bytes=few, resp_bytes=few))
    for most, is_told in ((999, False), (1_000, True)):
        ends = np.where(np.arange(COUNT) % 2, 0, most)
        effect = compress.forecast(one_method(stages=stages, req_bytes=ends), CONTEXT)
        assert isinstance(effect, Effect) == is_told, most


def test_a_hedging_budget_saves_work_and_promises_no_percentile() -> None:
    is_hedge = np.arange(COUNT) % 10 == 0
    calls = one_method(total_ns=np.full(COUNT, 1_000_000), is_hedge=is_hedge)
    effect = hedge_budget.forecast(calls, CONTEXT)
    assert isinstance(effect, Effect)
    # A tenth are hedges, 2 % may be: four fifths of a tenth of the work are saved.
    found = price("hedging budget", False, calls, effect)
    assert found.saved_share == pytest.approx(0.08)
    assert not found.pays and found.at(0.99).forecast_ns == found.at(0.99).now_ns
    assert "none" in refusal(hedge_budget, one_method(total_ns=np.ones(COUNT), is_hedge=np.zeros(COUNT, bool)))
    assert "not known" in refusal(hedge_budget, one_method(total_ns=np.ones(COUNT)))


def test_callers_do_not_wait_again_for_what_was_not_found(tmp_path: Path) -> None:
    """Each page asks the cache once, in vain; but for the first, that would not be asked again."""
    page, asked = staged(200, app_ns=700_000), staged(200, app_ns=300_000)
    traces = [index.to_bytes(16, "big") for index in range(200)]
    table = spans(
        stages=np.vstack([page, asked]),
        trace_id=traces * 2,
        span_id=[1] * 200 + [2] * 200,
        parent_id=[None] * 200 + [1] * 200,
        start_ns=np.concatenate([paced(200), paced(200) + 100]),
        service=["Page"] * 200 + ["Cache"] * 200,
        client_service=[None] * 200 + ["Page"] * 200,
        status=[schema.STATUS_OK] * 200 + ["NOT_FOUND"] * 200,
    )
    pages = next(methods(study_of(tmp_path, table), 5))
    assert pages.service == "Page"
    saved = pages.total - totals(negative_cache, pages)
    assert saved[0] == 0
    assert (saved[1:] == asked.sum(axis=1)[1:]).all()


def squeezed(**columns: Any) -> Calls:
    """Calls of 1,000 to 9,000 bytes, of which a byte takes 2 ns each way, and 40 us of processor time each."""
    sizes = np.linspace(1_000, 9_000, COUNT).astype(np.int64)
    stages = staged(COUNT)
    for way in ("request_wire", "response_wire"):
        stages[:, schema.STAGES.index(way)] = 2 * sizes
    named = {"req_bytes": sizes, "resp_bytes": sizes, "cpu_ns": [40_000] * COUNT} | columns
    return one_method(stages=stages, start_ns=paced(COUNT), **named)


def test_without_compression_its_work_goes_and_its_bytes_come() -> None:
    calls = squeezed()
    sizes = calls.floats("req_bytes")
    context = Context(compression={"Cart": 0.25}, compression_ratio=3.0)
    # A quarter of 40 us less; two more bytes of 2 ns for each of a message, both ways.
    assert totals(compression_off, calls, context) == pytest.approx(calls.total - 10_000 + 2 * 4 * sizes)
    # Where the bytes on the wire are known, it is by these: one and a half.
    wires = {name: (sizes / 1.5).astype(np.int64) for name in ("req_wire_bytes", "resp_wire_bytes")}
    found = totals(compression_off, squeezed(**wires), context)
    assert found == pytest.approx(calls.total - 10_000 + 2 * sizes, rel=1e-3)


def test_compression_off_is_not_priced_where_something_of_it_is_not_known() -> None:
    def why(calls: Calls, **shares: float) -> str:
        effect = compression_off.forecast(calls, Context(compression=shares))
        assert isinstance(effect, Refused), effect
        return effect.reason

    assert "a profile of its server" in why(squeezed(), Other=0.5)
    assert "there is none" in why(squeezed(), Cart=0.0)
    assert "rpc.cpu.ns" in why(squeezed(cpu_ns=[None] * COUNT), Cart=0.5)
    assert "sizes that differ" in why(squeezed(req_bytes=[5] * COUNT, resp_bytes=[5] * COUNT), Cart=0.5)


class NoNumber:
    """A remedy of which one forecast is no number."""

    NAME = "none"
    IS_OURS = False

    def forecast(self, calls: Calls, _context: Context) -> Effect:
        return Effect((np.where(np.arange(len(calls)) == 3, np.nan, calls.total),))


def test_what_is_no_number_is_no_forecast(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(stages=staged(COUNT), start_ns=paced(COUNT)))
    plan = make(study, CONTEXT, 1, [NoNumber()])
    assert not plan.prices and "for 1 call its forecast is no number" in plan.refusals[0].reason
