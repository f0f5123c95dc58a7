"""The first screen: what was looked at, what stands out with counts and intervals, which command goes on."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zipkin_spans
from sides import client, merged, record, server
from small_store import spans, study_of

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import overview as said
from scotfree.study.figures.words import lasting, span
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.run import ingest
from scotfree.study.plan.context import Context
from scotfree.study.plan.forecasts import make
from scotfree.study.report.overview import ROWS_MAX, overview
from scotfree.study.report.write import write_report
from scotfree.study.schema import Kind
from scotfree.study.trouble import StudyError

CALLS = 240
MS = 1_000_000


def plain(**columns: Any) -> dict[str, Any]:
    """Client and server spans without stages: checkout waits for cart, search is slow in its handler."""
    at = np.arange(CALLS)
    is_cart = at % 2 == 0
    app = np.where(is_cart, 1 * MS, 20 * MS + at * MS // 10)
    return {
        "total_ns": app + np.where(is_cart, 3 * MS + at * 1_000, MS // 10),
        "server_app_ns": app,
        "service": np.where(is_cart, "cart", "search").tolist(),
        "method": np.where(is_cart, "Get", "Query").tolist(),
        "client_service": ["checkout"] * CALLS,
        "status": ["UNAVAILABLE" if each < 24 and each % 2 == 0 else "OK" for each in at],
        "start_ns": at * 500_000_000,
        **columns,
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("overview") / "shop.store", spans(**plain()))


def sentences(study: Study) -> dict[str, list[str]]:
    return {
        group.title: [f"{one.name}: {one.sentence}" if one.name else one.sentence for one in group.sentences]
        for group in said.groups(study)
    }


def test_edges_that_wait_longest_come_first_with_interval_and_count(study: Study) -> None:
    first, second = sentences(study)["Waiting outside the handler"]
    assert re.fullmatch(
        r"checkout → cart Get: half of the calls wait 3\.13 ms outside the handler "
        r"\(3\.1\d? to 3\.1\d ms, 108 calls\), one in twenty 3\.23 ms; [\d.]+ % of all time\.",
        first,
    ), first
    assert second.startswith("checkout → search Query: half of the calls wait 100 µs outside the handler (")


def test_slow_methods_are_those_of_much_time_and_of_long_tails(study: Study) -> None:
    query, get = sentences(study)["Slow methods"]
    assert query.startswith("search Query: 90 % of all time; half of the calls take 32 ms (")
    assert "ms, 120 calls), one in twenty 42.8 ms" in query
    assert "of its time lies outside the handler" in get


def test_errors_are_said_with_their_status_and_an_interval(study: Study) -> None:
    (error,) = sentences(study)["Errors"]
    assert re.fullmatch(
        r"cart Get: 10 % of the calls fail \([\d.]+ to [\d.]+ %, 120 calls\), 12 in all; "
        r"all as UNAVAILABLE \(in HTTP 503\)\.",
        error,
    ), error


def test_calls_of_one_trace_have_no_interval_and_say_so(tmp_path: Path) -> None:
    found = sentences(study_of(tmp_path, spans(**plain(trace_id=[bytes(16)] * CALLS))))
    assert "(108 calls of 1 trace, too few for an interval)" in found["Waiting outside the handler"][0]


def test_a_p95_of_few_calls_is_not_said(tmp_path: Path) -> None:
    few = {name: values[:20] for name, values in plain().items()}
    found = sentences(study_of(tmp_path, spans(**few | {"status": ["OK"] * 20})))
    assert "10 calls)" in found["Waiting outside the handler"][0]
    assert not any("one in twenty" in one or "in a hundred" in one for group in found.values() for one in group)
    assert found["Errors"] == ["No call is recorded as failed."]


@pytest.mark.parametrize(
    ("status", "first"), [("OK", "No call is recorded as failed."), ("ERROR", "1 call failed")]
)
def test_errors_of_work_inside_are_named_beside_those_of_calls(tmp_path: Path, status: str, first: str) -> None:
    inner = [record(Kind.INTERNAL, 10 + at, 2, service="cart", status="ERROR") for at in range(3)]
    store = merged(tmp_path, [client(1, status=status), server(2, 1), *inner])
    errors = sentences(Study(store, DuckEngine(store, memory="500MB", threads=2)))["Errors"]
    assert errors[0].startswith(first)
    assert errors[1:] == ["Work inside services, which is no call, failed in 3 records."]


def test_a_plan_is_no_next_step_where_it_would_refuse_all_methods(tmp_path: Path) -> None:
    few = study_of(
        tmp_path / "few", spans(**{name: values[:198] for name, values in plain(status=["OK"] * CALLS).items()})
    )
    assert not any(step.command.startswith("scot plan") for step in overview(few).steps)
    assert "a method with 100 successful calls whose total is known, and here is none" in overview(few).no_plan
    with pytest.raises(StudyError, match="no method has 100 successful calls"):
        make(few, Context(), 20)
    write_report(few, tmp_path / "few.html")
    html = (tmp_path / "few.html").read_text()
    assert "A plan needs a method with" in html and "<code>scot plan" not in html
    enough = study_of(
        tmp_path / "enough", spans(**{name: values[:200] for name, values in plain(status=["OK"] * CALLS).items()})
    )
    assert overview(enough).steps[0].command.startswith("scot plan") and not overview(enough).no_plan
    assert make(enough, Context(), 20).methods == 2


def test_without_servers_records_it_is_said_what_to_add(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(**plain(server_app_ns=[None] * CALLS)))
    (wait,) = sentences(study)["Waiting outside the handler"]
    assert "is not known" in wait and "the server's span beside the client's" in wait
    assert "outside the handler" not in sentences(study)["Slow methods"][0]


def test_the_scope_says_when_how_many_and_how_long(study: Study) -> None:
    scope = dict(overview(study).scope)
    assert scope["Calls"] == "240 calls of 2 methods in 240 traces, between 3 services"
    assert scope["Time"] == "1970-01-01 00:00:00 to 00:01:59 UTC (1 minute, by when calls began)"
    assert set(scope) == {"Files", "Time", "Calls", "Records"}


@pytest.mark.parametrize(
    ("count", "said"), [(1, "cut-0.json ends"), (5, "cut-0.json, cut-1.json, cut-2.json and 2 others end")]
)
def test_files_that_end_early_are_named(tmp_path: Path, count: int, said: str) -> None:
    """One record is dropped of each, and how many there were nobody knows."""
    (tmp_path / "data").mkdir()
    for number in range(count):
        text = zipkin_spans.write(tmp_path / "data" / f"cut-{number}.json").read_text()
        (tmp_path / "data" / f"cut-{number}.json").write_text(text[: len(text) // 2])
    zipkin_spans.write(tmp_path / "data" / "whole.json")
    store = ingest([tmp_path / "data"], tmp_path / "store", Options(quiet=True))
    scope = dict(overview(Study(store, DuckEngine(store, memory="500MB", threads=1))).scope)
    assert scope["Records"].endswith(f"; {said} early or damaged: how much followed is not known")


def test_what_is_one_is_said_of_one(tmp_path: Path) -> None:
    study = study_of(tmp_path / "one.store", spans(total_ns=[5_000], client_service=["Cart"]))
    assert dict(overview(study).scope)["Calls"] == "1 call of 1 method in 1 trace, of 1 service"
    write_report(study, tmp_path / "one.html")
    html = (tmp_path / "one.html").read_text()
    assert "<title>The RPC tax of 1 call</title>" in html and "the time of 1 call goes" in html


def test_a_status_of_grpc_alone_has_no_other(tmp_path: Path) -> None:
    (error,) = sentences(study_of(tmp_path, spans(total_ns=[5_000] * 9, status=["DATA_LOSS"] * 9)))["Errors"]
    assert error.endswith("9 in all; all as DATA_LOSS.")


def test_the_next_commands_name_the_store(study: Study) -> None:
    store = str(study.store.folder)
    assert [step.command for step in overview(study).steps] == [
        f"scot plan {store}",
        f"scot study serve {store}",
        f"scot study compare {store} after.store",
    ]


def test_a_page_of_plain_traces_begins_with_what_is_known(study: Study, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    write_report(study, output)
    html = unescape(output.read_text())
    places = [
        html.index(each)
        for each in (
            'id="scope"',
            "checkout → cart Get</b>: half of",
            f"<code>scot plan {study.store.folder}",
            'id="methods"',
            'id="edges"',
            'id="figures"',
            'id="missing"',
        )
    ]
    assert places == sorted(places)
    edges = html[html.index('id="edges"') : html.index('id="figures"')]
    assert '<th scope="row">Get<small>checkout → cart</small></th><td class="number">108</td>' in edges


def test_tables_have_fifty_rows_and_say_how_many_others_there_are(tmp_path: Path) -> None:
    count = (ROWS_MAX + 7) * 5 + 2
    methods = [f"M{at // 5:03}" for at in range(count)]
    study = study_of(tmp_path, spans(total_ns=np.arange(1, count + 1), method=methods))
    listed = overview(study).methods
    # The one of two calls is not among them.
    assert (len(listed.rows), listed.others, listed.few) == (ROWS_MAX, 7, 1)
    assert listed.rows[0]["name"] == f"M{ROWS_MAX + 6:03}"
    assert overview(study).tables["methods"].num_rows == ROWS_MAX + 7


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (1_860_000_000, "1.86 s"),
        (60 * 10**9, "1 minute"),
        (3_725 * 10**9, "1 hour and 2 minutes"),
        ((2 * 86_400 + 3 * 3_600) * 10**9, "2 days and 3 hours"),
        (0, "0 ns"),
    ],
)
def test_how_long_something_went_on(ns: int, text: str) -> None:
    assert lasting(ns) == text


def test_a_unit_is_said_once() -> None:
    assert span("2.9 ms", "3.4 ms") == "2.9 to 3.4 ms"
    assert span("900 µs", "1.1 ms") == "900 µs to 1.1 ms"


def made(folder: Path, **columns: Any) -> list[str]:
    return sentences(study_of(folder, spans(**columns))).get("How calls are made", [])


def called_by(folder: Path, callers: list[list[bool]], **columns: Any) -> list[str]:
    """What is said of callers, each a trace of its own, by whether their calls of cart fail."""
    of = [(caller, place) for caller, fails in enumerate(callers) for place in range(len(fails))]
    rows: dict[str, list[Any]] = {
        "trace_id": [(caller + 1).to_bytes(16, "big") for caller, _ in of],
        "parent_id": [7] * len(of),
        "span_id": [100 + place for _, place in of],
        "start_ns": [1_000 * place for _, place in of],
        "status": ["UNAVAILABLE" if callers[caller][place] else "OK" for caller, place in of],
        "service": ["cart"] * len(of),
        "client_service": ["checkout"] * len(of),
        "total_ns": [5_000] * len(of),
    }
    return made(folder, **{name: [*rows.get(name, []), *columns.get(name, [])] for name in {**rows, **columns}})


def test_retries_and_calls_in_numbers_are_said(tmp_path: Path) -> None:
    """Of sixty callers each calls cart twice, and once more where the second failed."""
    retries, numbers = called_by(tmp_path, [[False, True, False]] * 12 + [[False, False]] * 48)
    assert retries == (
        "checkout \u2192 cart Get: after 12 of 12 failed calls the same caller calls again, which after calls "
        "that succeed would be 0: some 12 retries in 132 calls."
    )
    assert numbers == "checkout \u2192 cart Get: one call makes up to 3 of these, 2.2 on average (60 callers)."


def test_calls_within_a_machine_are_said(tmp_path: Path) -> None:
    (placed,) = made(
        tmp_path,
        client_machine=["a"] * 20,
        server_machine=["a", "b"] * 10,
        total_ns=[1_000, 9_000] * 10,
    )
    assert placed == (
        "Of 20 calls that name both machines 50 % stay on one: half of these take 1 \u00b5s, "
        "of the others 9 \u00b5s."
    )


def failing(calls: int, share: float, chance: np.random.Generator) -> list[bool]:
    return [bool(each) for each in chance.random(calls) < share]


def test_calls_that_come_anyway_are_no_retries(tmp_path: Path) -> None:
    """What fails by chance has nothing to do with how many calls there are, however many these are."""
    chance = np.random.default_rng(5)
    two = [failing(2, 0.065, chance) for _ in range(500)]
    assert [one for one in called_by(tmp_path / "two", two) if "retries" in one] == []
    # Who makes nine sees more of them fail than who makes one.
    many = [failing(int(chance.integers(1, 10)), 0.065, chance) for _ in range(500)]
    assert [one for one in called_by(tmp_path / "many", many) if "retries" in one] == []


def test_a_caller_whose_calls_fail_more_and_that_makes_more_does_not_retry(tmp_path: Path) -> None:
    chance = np.random.default_rng(6)
    callers = [failing(4, 0.5, chance) if at % 2 else failing(1, 0.02, chance) for at in range(200)]
    # Each has a call of its own above its calls of cart, by which its kind is known.
    above = {
        "trace_id": [(at + 1).to_bytes(16, "big") for at in range(200)],
        "parent_id": [None] * 200,
        "span_id": [7] * 200,
        "start_ns": [0] * 200,
        "status": ["OK"] * 200,
        "service": ["save" if at % 2 else "look" for at in range(200)],
        "client_service": [None] * 200,
        "total_ns": [9_000] * 200,
    }
    assert [one for one in called_by(tmp_path, callers, **above) if "retries" in one] == []


def test_hedges_are_no_retries(tmp_path: Path) -> None:
    """Of each second caller the first of three calls is a hedge, which is cancelled."""
    callers = [[True, False, False]] * 40 + [[False]] * 40
    hedges = [True, False, False] * 40 + [None] * 40
    assert [one for one in called_by(tmp_path, callers, is_hedge=hedges) if "retries" in one] == []


def test_what_there_is_none_of_is_not_said(tmp_path: Path) -> None:
    assert made(tmp_path / "none", service=["cart"] * 9, total_ns=[5_000] * 9) == []
    # A caller that calls again after a success retries nothing.
    again = made(
        tmp_path / "again",
        trace_id=[(index // 2 + 1).to_bytes(16, "big") for index in range(12)],
        parent_id=[7] * 12,
        start_ns=list(range(12)),
        status=["OK", "UNAVAILABLE"] * 6,
        total_ns=[5_000] * 12,
    )
    assert [one for one in again if "retries" in one] == []


def test_calls_that_devices_answer_are_counted_apart(tmp_path: Path) -> None:
    by = ["server"] * 30 + ["device:1"] * 10 + ["device:1/cache"] * 60
    columns: dict[str, list[Any]] = {
        "answered_by": [*by, *["server"] * 100, *[None] * 50],
        "method": ["GET"] * 100 + ["DEL"] * 100 + ["PING"] * 50,
        "total_ns": [90_000] * 30 + [40_000] * 10 + [20_000] * 60 + [80_000] * 150,
        "status": ["OK"] * 250,
    }
    found = sentences(study_of(tmp_path, spans(**columns))).get("Answered by devices", [])
    assert found == [
        "Cart GET: of 100 calls 60 % by device:1/cache (20 \u00b5s on average), 30 % by the server (90 \u00b5s on "
        "average) and 10 % by device:1 (40 \u00b5s on average)."
    ]
    # Where nobody but servers answers, nothing is said.
    plain_calls = {name: values[100:200] for name, values in columns.items()}
    assert "Answered by devices" not in sentences(study_of(tmp_path / "plain", spans(**plain_calls)))
