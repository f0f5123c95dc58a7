"""replicate: reads that wait a third as busily, writes that take the trips between members longer."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from planned import one_method, paced, staged

from scotfree.study.plan import group
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused
from scotfree.study.plan.remedies import replicate

COUNT = 400


def half_busy(**columns: object) -> Calls:
    """Calls of 50 us of work, one each 100 us."""
    return one_method(stages=staged(COUNT, server_recv_queue_ns=40_000), start_ns=paced(COUNT, 100_000), **columns)


def effect(calls: Calls, context: Context) -> Effect:
    found = replicate.forecast(calls, context)
    assert isinstance(found, Effect), found
    return found


def test_a_half_busy_server_has_a_fifth_of_its_waits_left_among_three() -> None:
    calls = half_busy()
    found = effect(calls, Context())
    # u = 1/2 waits as 1, u = 1/6 as 1/5.
    saved = (calls.total - found.totals[1]) / calls.ns("server_recv_queue")
    assert saved == pytest.approx(0.8, abs=0.02)
    assert "50 % of the time" in found.notes[0] and "3 servers" in found.notes[0]


def test_more_servers_leave_less_and_the_draws_say_how_sure_that_is() -> None:
    calls = half_busy()
    by_servers = [effect(calls, Context(replicas=servers)).totals[1].sum() for servers in (2, 3, 8)]
    assert by_servers == sorted(by_servers, reverse=True) and by_servers[0] < calls.total.sum()
    busier = [float(totals.sum()) for totals in effect(calls, Context()).totals]
    assert busier == sorted(busier, reverse=True), "a busier server gains more"


def test_a_write_takes_the_trips_between_members_longer() -> None:
    calls = half_busy()
    found = effect(calls, Context(updates=("*",)))
    wire = float(np.median(np.concatenate([calls.ns("request_wire"), calls.ns("response_wire")])))
    chain, hermes = (float((totals - calls.total)[0]) for totals in found.totals)
    assert chain == pytest.approx(group.CHAIN.more_ns + 3 * wire)
    assert hermes == pytest.approx(group.HERMES.more_ns + 2 * wire)
    five = effect(calls, Context(updates=("*",), replicas=5)).totals
    assert float((five[0] - calls.total)[0]) == pytest.approx(group.CHAIN.more_ns * 5 / 3 + 5 * wire)
    assert five[1] == pytest.approx(found.totals[1]), "all are told at once, however many"


def test_reads_whose_waits_are_not_known_have_no_price() -> None:
    found = replicate.forecast(one_method(total_ns=[100_000] * COUNT, start_ns=paced(COUNT)), Context())
    assert isinstance(found, Refused) and "server_recv_queue" in found.reason
    written = replicate.forecast(
        one_method(total_ns=[100_000] * COUNT, start_ns=paced(COUNT)), Context(updates=("*",))
    )
    assert isinstance(written, Refused) and "request_wire" in written.reason


def test_what_a_write_takes_is_what_was_measured() -> None:
    """The constants follow from the result that they name, and are mended with it."""
    result = Path(__file__).parents[2] / "lab" / "results" / "group-etcd-put.json"
    values = {one["claim"]: one["value"] for one in json.loads(result.read_text())["claims"]}
    for protocol, name in ((group.CHAIN, "CRAQ"), (group.HERMES, "Hermes")):
        measured_us = values[f"a write stored by three, {name}, one at a time, p50"]
        assert protocol.more_ns == pytest.approx(measured_us * 1_000 - group.ALONE_NS, rel=0.02)
