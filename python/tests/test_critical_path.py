"""The critical path by CRISP's rules: small traces counted by hand, random ones beside plain loops."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import crisp_oracle
import numpy as np
import pytest
from crisp_oracle import Span
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import spans, study_of

from scotfree.study.analysis import critical_path, path_times
from scotfree.study.analysis.critical_path import Calls
from scotfree.study.analysis.path_times import PathTimes
from scotfree.study.analysis.study import Study
from scotfree.study.cli import main
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.store import Store

Folded = dict[tuple[str, ...], tuple[int, int, int]]


def own_times(*rows: tuple[Any, ...]) -> dict[str, int]:
    """By name what is a call's own on the path; rows as of `Span`: parent, start and end, perhaps its machine."""
    found: dict[str, int] = {}
    for stack, (own, _, _) in folded(made(*rows)).items():
        found[stack[-1]] = found.get(stack[-1], 0) + own
    return found


def made(*rows: tuple[Any, ...]) -> list[Span]:
    """Spans from name, parent's name, start, end and host."""
    ids = {row[0]: at for at, row in enumerate(rows)}
    return [
        Span(ids[name], ids.get(parent), start, end - start, name, host=host[0] if host else "")
        for name, parent, start, end, *host in rows
    ]


def calls_of(trace: list[Span]) -> Calls:
    rows = {span.id: at for at, span in enumerate(trace)}
    callees: dict[int, list[int]] = {}
    for at, span in enumerate(trace):
        if span.parent in rows and span.parent != span.id:
            callees.setdefault(rows[span.parent], []).append(at)
    hosts = sorted({span.host for span in trace} - {""})
    return Calls(
        [span.start for span in trace],
        [span.duration for span in trace],
        [hosts.index(span.host) if span.host else -1 for span in trace],
        lambda at: callees.get(at, []),
    )


def folded(trace: list[Span]) -> Folded:
    """As `crisp_oracle.folded`, by what is tested."""
    steps = critical_path.path(calls_of(trace), 0)
    stacks: list[tuple[str, ...]] = []
    sums: dict[tuple[str, ...], list[int]] = {}
    for step, own in zip(steps, critical_path.exclusive(steps), strict=True):
        stacks.append((*(stacks[step.above] if step.above >= 0 else ()), trace[step.call].name))
        line = sums.setdefault(stacks[-1], [0, 0, 0])
        line[0] += own
        line[1] += step.taken
        line[2] += 1
    return {stack: (max(own, 0), whole, count) for stack, (own, whole, count) in sums.items()}


def test_one_after_the_other_all_are_waited_for() -> None:
    assert own_times(("a", "", 0, 100), ("b", "a", 10, 30), ("c", "a", 40, 80)) == {"a": 40, "b": 20, "c": 40}


def test_of_two_at_once_the_one_that_ends_last_is_waited_for() -> None:
    assert own_times(("a", "", 0, 100), ("b", "a", 10, 60), ("c", "a", 20, 80)) == {"a": 40, "c": 60}


def test_of_three_that_overlap_in_turn_the_first_and_the_last_are_waited_for() -> None:
    found = own_times(("a", "", 0, 100), ("b", "a", 0, 40), ("c", "a", 30, 70), ("d", "a", 60, 100))
    assert found == {"a": 20, "b": 40, "d": 40}


def test_a_hundredth_of_overlap_is_one_behind_the_other() -> None:
    assert own_times(("a", "", 0, 1000), ("b", "a", 0, 509), ("c", "a", 500, 1000)) == {"a": 0, "b": 509, "c": 500}
    assert own_times(("a", "", 0, 1000), ("b", "a", 0, 510), ("c", "a", 500, 1000)) == {"a": 500, "c": 500}


def test_a_third_that_begins_in_the_overlap_says_that_they_were_at_once() -> None:
    two = [("a", "", 0, 1000), ("b", "a", 0, 505), ("c", "a", 500, 1000)]
    assert own_times(*two, ("d", "a", 502, 900)) == {"a": 500, "c": 500}


def test_one_that_outlives_its_caller_is_cut_and_what_is_below_it_too() -> None:
    found = own_times(("a", "", 0, 100), ("b", "a", 60, 150), ("c", "b", 80, 140), ("d", "b", 110, 120))
    assert found == {"a": 60, "b": 20, "c": 20}


def test_a_message_that_is_handled_later_is_no_part_of_its_sender_s_time() -> None:
    found = own_times(
        ("a", "", 0, 100), ("send", "a", 40, 50), ("handle", "a", 120, 300), ("x", "handle", 130, 140)
    )
    assert found == {"a": 90, "send": 10}


def test_tries_are_waited_for_one_by_one() -> None:
    found = folded(made(("a", "", 0, 100), ("b", "a", 5, 25), ("c", "a", 30, 31)))
    retried = folded([*made(("a", "", 0, 100)), Span(1, 0, 5, 20, "b"), Span(2, 0, 30, 50, "b")])
    assert found[("a", "b")] == (20, 20, 1)
    assert retried == {("a",): (30, 100, 1), ("a", "b"): (70, 70, 2)}


def test_callees_that_a_clock_puts_outside_are_moved_into_their_caller() -> None:
    late = [
        ("a", "", 0, 100, "web"),
        ("b", "a", 70, 90, "shop"),
        ("c", "a", 95, 125, "shop"),
        ("d", "c", 100, 110),
    ]
    assert own_times(*late) == {"a": 50, "b": 20, "c": 20, "d": 10}
    early = [("a", "", 0, 100, "web"), ("b", "a", -40, 10, "shop")]
    assert own_times(*early) == {"a": 50, "b": 50}


@pytest.mark.parametrize("hosts", [("", "shop"), ("web", ""), ("shop", "shop")])
def test_by_the_same_clock_or_an_unknown_one_they_are_cut(hosts: tuple[str, str]) -> None:
    assert own_times(("a", "", 0, 100, hosts[0]), ("b", "a", -40, 10, hosts[1])) == {"a": 90, "b": 10}


def test_callees_of_two_clocks_are_not_moved_together() -> None:
    found = own_times(("a", "", 0, 100, "web"), ("b", "a", -40, 10, "shop"), ("c", "a", 20, 40, "cart"))
    assert found == {"a": 70, "b": 10, "c": 20}


def test_one_that_is_longer_than_its_caller_is_not_moved() -> None:
    assert own_times(("a", "", 0, 100, "web"), ("b", "a", 50, 170, "shop")) == {"a": 50, "b": 50}


def test_a_ring_of_parents_ends() -> None:
    trace = [Span(0, 1, 0, 100, "a"), Span(1, 0, 10, 20, "b"), Span(2, 2, 0, 5, "c")]
    assert folded(trace) == {("a",): (80, 100, 1), ("a", "b"): (20, 20, 1)}


def test_a_deep_trace_is_no_deeper_than_python_can_go() -> None:
    steps = critical_path.path(calls_of([Span(at, at - 1, at, 10_000 - 2 * at, "x") for at in range(3_000)]), 0)
    assert len(steps) == 3_000 and sum(critical_path.exclusive(steps)) == 10_000


def near(low: int, high: int) -> st.SearchStrategy[int]:
    """Round numbers and their neighbours, so that times touch and overlap a little."""
    return st.builds(
        lambda tens, off: 100 * tens + off, st.integers(low, high), st.sampled_from((-3, -1, 0, 0, 0, 1, 4))
    )


CALL = st.tuples(st.integers(0, 14), near(-2, 12), near(0, 8).map(abs))


def random_trace(calls: list[tuple[int, int, int]]) -> list[Span]:
    """In the order of starts, as stores have calls: what is at once then stands in one order for both."""
    trace = [Span(0, None, 0, 1_000, "m0")]
    for at, (above, start, taken) in enumerate(calls, 1):
        trace.append(Span(at, min(above, at - 1), start, taken, f"m{at % 4}"))
    return [trace[0], *sorted(trace[1:], key=lambda span: (span.start, span.id))]


@settings(deadline=None, max_examples=600)
@given(st.lists(CALL, max_size=14))
def test_random_traces_are_counted_as_by_plain_loops(calls: list[tuple[int, int, int]]) -> None:
    trace = random_trace(calls)
    assert folded(trace) == crisp_oracle.folded(crisp_oracle.path(trace, 0))


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 100)), min_size=1, max_size=6),
    st.integers(-2_000, 2_000),
)
def test_an_only_callee_by_another_clock_is_whole_as_by_plain_loops(
    below: list[tuple[int, int]], skew: int
) -> None:
    trace = [Span(0, None, 0, 1_000, "m0", host="web"), Span(1, 0, skew, 1_000, "m1", host="shop")]
    trace += [
        Span(at, 1, skew + start, taken, f"m{at}", host="shop") for at, (start, taken) in enumerate(below, 2)
    ]
    ordered = [*trace[:2], *sorted(trace[2:], key=lambda span: (span.start, span.id))]
    assert folded(ordered) == crisp_oracle.folded(crisp_oracle.path(ordered, 0))


def jaeger(seed: int) -> tuple[dict[str, Any], list[Span]]:
    """A trace of clients' and servers' spans, all on one host, as Jaeger has it and as the oracle takes it."""
    chance, trace = random.Random(seed), [Span(1, None, 0, 100_000, f"web entry{seed}", "server", "h")]
    waiting = [trace[0]]
    while waiting and len(trace) < 25:
        server = waiting.pop(0)
        for _ in range(chance.randrange(4)):
            start = server.start + chance.randrange(0, server.duration // 2)
            taken = chance.randrange(100, max(server.start + server.duration - start, 101))
            taken = min(taken, server.end - start)
            wire, name = chance.randrange(taken // 4), f"s{chance.randrange(5)} m{chance.randrange(3)}"
            client = Span(len(trace) + 1, server.id, start, taken, name, "client", "h")
            trace.append(client)
            waiting.append(Span(len(trace) + 1, client.id, start + wire, taken - 2 * wire, name, "server", "h"))
            trace.append(waiting[-1])
    trace.sort(key=lambda span: (span.start, span.id))
    return {"spans": [_jaeger(span, f"{seed + 1:032x}") for span in trace], "processes": _PROCESSES}, trace


_PROCESSES = {
    service: {"serviceName": service, "tags": [{"key": "hostname", "type": "string", "value": "h"}]}
    for service in ("web", *(f"s{at}" for at in range(5)))
}


def _jaeger(span: Span, trace: str) -> dict[str, Any]:
    service, method = span.name.split()
    above = [{"refType": "CHILD_OF", "traceID": trace, "spanID": f"{span.parent:016x}"}] if span.parent else []
    return {
        "traceID": trace,
        "spanID": f"{span.id:016x}",
        "operationName": method,
        "references": above,
        "startTime": 1_700_000_000_000_000 + span.start,
        "duration": span.duration,
        "processID": "web" if span.kind == "client" else service,
        "tags": [{"key": "span.kind", "type": "string", "value": span.kind}],
    }


def as_calls(trace: list[Span]) -> Folded:
    """The oracle's path with a client's span and its server's as one call, which the client's times are of."""
    found: dict[tuple[str, ...], list[int]] = {}
    for one in crisp_oracle.path(trace, 1):
        is_client = one.span.kind == "client" or one.span.id == 1
        # Names go server, client, server, client: of each pair one is kept.
        line = found.setdefault((one.stack[0], *one.stack[1::2]), [0, 0, 0])
        line[0] += one.own
        line[1] += one.span.duration if is_client else 0
        line[2] += is_client
    return {stack: (max(own, 0), whole, count) for stack, (own, whole, count) in found.items()}


def test_traces_of_jaeger_are_counted_as_by_plain_loops(tmp_path: Path) -> None:
    """From the file on: each trace is of an entry of its own, so that one call is at each percentile of it."""
    documents, traces = zip(*map(jaeger, range(40)), strict=True)
    (tmp_path / "traces.json").write_text(json.dumps({"data": documents}))
    assert main(["ingest", str(tmp_path / "traces.json"), "--store", str(tmp_path / "store"), "--quiet"]) == 0
    source = DuckEngine(Store.open(tmp_path / "store"))
    calls = source.table("span")
    roots = source.arrow(calls.filter(calls.parent_id.isnull()))["method_id"].to_pylist()
    found = path_times.at_percentiles(source, roots)
    ours: dict[str, dict[str, list[float]]] = {}
    for row in found.stacks.to_pylist():
        if row["p"] == 0.5:
            times = [row["exclusive_ns"], row["inclusive_ns"], row["frequency"]]
            ours.setdefault(row["method"], {})[row["stack"]] = times
    assert len(ours) == len(traces)
    for seed, trace in enumerate(traces):
        wanted = {
            ";".join("[{}] {}".format(*name.split()) for name in stack): [own * 1_000, whole * 1_000, count]
            for stack, (own, whole, count) in as_calls(trace).items()
        }
        assert ours[f"entry{seed}"] == wanted, seed


def many(tmp_path: Path, count: int, **columns: Any) -> tuple[Study, PathTimes]:
    """Traces of an entry that takes 1 to `count` ms, half of it in a callee."""
    at = np.arange(2 * count) // 2
    is_callee = np.arange(2 * count) % 2 == 1
    total = (at + 1) * 1_000_000
    made = {
        "trace_id": [int(each).to_bytes(16, "big") for each in at],
        "span_id": np.arange(2 * count),
        "parent_id": np.ma.masked_array(np.arange(2 * count) - 1, ~is_callee).tolist(),
        "total_ns": np.where(is_callee, total // 2, total),
        "server_app_ns": np.where(is_callee, total // 4, total),
        "service": np.where(is_callee, "cart", "web").tolist(),
        "method": np.where(is_callee, "Get", "/").tolist(),
    }
    study = study_of(tmp_path / "shop.store", spans(**made | columns))
    return study, path_times.of_entries(study)


def at(found: PathTimes, p: float) -> dict[str, dict[str, Any]]:
    return {row["on_service"]: row for row in found.methods.to_pylist() if row["p"] == p}


def test_calls_near_a_percentile_are_taken_as_crisp_slices_ranks(tmp_path: Path) -> None:
    _, found = many(tmp_path, 1_000)
    for p, low, high in ((0.5, 490, 510), (0.95, 940, 960), (0.99, 980, 1_000)):
        web, cart = at(found, p)["web"], at(found, p)["cart"]
        mean = sum(range(low + 1, high + 1)) / 20 * 1_000_000
        assert (web["calls"], web["total_ns"]) == (20, pytest.approx(mean))
        assert web["exclusive_ns"] == web["inclusive_ns"] / 2 == cart["exclusive_ns"] == pytest.approx(mean / 2)
        assert cart["outside_ns"] == pytest.approx(mean / 4)
        assert cart["share"] == web["share"] == pytest.approx(0.5)
    assert found.stacks["stack"].to_pylist()[:2] == ["[web] /", "[web] /;[cart] Get"]


def test_of_few_calls_some_more_are_taken_and_of_very_many_not_all(tmp_path: Path) -> None:
    assert at(many(tmp_path / "few", 40)[1], 0.5)["web"]["calls"] == 4
    assert at(many(tmp_path / "one", 1)[1], 0.99)["web"]["calls"] == 1
    assert at(many(tmp_path / "many", 4_000)[1], 0.95)["web"]["calls"] == path_times.CALLS_MOST


def test_calls_stand_for_as_many_as_were_not_sampled(tmp_path: Path) -> None:
    """The slowest call of a hundred stands for as many again: the P50 is among what was the slowest tenth."""
    weights = np.repeat(np.where(np.arange(100) == 99, 100.0, 1.0), 2)
    _, found = many(tmp_path, 100, sample_weight=weights)
    assert at(found, 0.95)["web"]["total_ns"] == pytest.approx(100e6)


def test_calls_that_failed_are_no_entry_but_on_the_path(tmp_path: Path) -> None:
    status = ["OK", "UNAVAILABLE"] * 100
    _, found = many(tmp_path, 100, status=status)
    assert at(found, 0.5)["cart"]["share"] == pytest.approx(0.5)
    _, none = many(tmp_path / "failed", 100, status=["UNAVAILABLE", "OK"] * 100)
    assert none.methods.num_rows == none.stacks.num_rows == 0


def test_what_is_read_is_bounded_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_times, "READ_MOST", 12)
    _, found = many(tmp_path, 1_000)
    assert [at(found, p)["web"]["calls"] for p in path_times.PS] == [2, 2, 2]
    monkeypatch.setattr(path_times, "TRACE_MOST", 1)
    _, none = many(tmp_path / "large", 10)
    assert none.methods.num_rows == 0


def deep(tmp_path: Path, levels: int) -> Study:
    """One trace in which each call makes the next, a microsecond of its own before and behind it."""
    at = np.arange(levels)
    rows = spans(
        trace_id=[bytes(15) + b"\x01"] * levels,
        span_id=at + 1,
        parent_id=[None, *range(1, levels)],
        start_ns=at * 1_000,
        total_ns=(levels - at) * 2_000,
        service=[f"s{each % 3}" for each in at],
    )
    return study_of(tmp_path / "deep.store", rows)


def test_a_deep_stack_is_named_to_a_bound_and_has_what_lies_deeper(tmp_path: Path) -> None:
    found = path_times.of_entries(deep(tmp_path, 1_000))
    rows = [row for row in found.stacks.to_pylist() if row["p"] == 0.5]
    assert [row["stack"].count(";") for row in rows] == [
        *range(path_times.FRAMES_MOST - 1),
        path_times.FRAMES_MOST,
    ]
    assert rows[-1]["stack"] == rows[-2]["stack"] + ";[s0] Get" + path_times.DEEPER
    assert [row["exclusive_ns"] for row in rows[:-1]] == [2_000] * (path_times.FRAMES_MOST - 1)
    assert rows[-1]["exclusive_ns"] == rows[-1]["inclusive_ns"]
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(row["share"] for row in at(found, 0.5).values()) == pytest.approx(1)


def test_without_stacks_methods_are_the_same(tmp_path: Path) -> None:
    engine = deep(tmp_path, 100).engine
    whole = path_times.at_percentiles(engine, [0, 1])
    assert whole.methods.num_rows and path_times.methods_at_percentiles(engine, [0, 1]) == whole.methods


def test_of_a_deep_trace_so_many_calls_are_looked_at_as_the_bound_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call is at a percentile of its method, and the path below it is as deep again."""
    engine = deep(tmp_path, 3_000).engine
    monkeypatch.setattr(path_times, "STEPS_MOST", 10_000)
    walked: list[int] = []

    def path(calls: Calls, root: int) -> list[critical_path.Step]:
        steps = _path(calls, root)
        walked.append(len(steps))
        return steps

    _path = critical_path.path
    monkeypatch.setattr(critical_path, "path", path)
    found = path_times.methods_at_percentiles(engine, [0])
    assert 10_000 < sum(walked) <= 10_000 + 3_000
    # Each percentile has those nearest to it.
    assert sorted(set(found["p"].to_pylist())) == list(path_times.PS)


def test_the_parts_of_a_fleet_s_paths_are_the_whole(tmp_path: Path) -> None:
    """Calls with both sides, machines and weights: nothing is lost or there twice."""
    generate(
        tmp_path / "fleet", FleetOptions(spans=20_000, methods=40, partitions=2, metrics=False, profiles=False)
    )
    store = Store.open(tmp_path / "fleet")
    found = path_times.of_entries(Study(store, DuckEngine(store)))
    assert len(set(found.methods["method_id"].to_pylist())) == path_times.ENTRIES_MOST
    shares: dict[tuple[int, float], float] = {}
    for row in found.methods.to_pylist():
        key = (row["method_id"], row["p"])
        shares[key] = shares.get(key, 0.0) + row["share"]
    assert all(share == pytest.approx(1, abs=0.02) for share in shares.values())
