"""SkyWalking's answers and segments, from an own small fixture, in every way in which they are written."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, read, read_bytes

from scotfree.study.cli import main
from scotfree.study.ingest import skywalking
from scotfree.study.ingest.forms import READERS
from scotfree.study.ingest.skywalking import SkyWalking
from scotfree.study.schema import Kind
from scotfree.study.store import Store

ANSWER = FIXTURES / "skywalking.json"
SPANS: list[dict[str, Any]] = json.loads(ANSWER.read_text())["data"]["trace"]["spans"]
MS = 1_000_000


def _segments() -> list[dict[str, Any]]:
    """The same as agents collect it; protobuf's JSON has long numbers as texts, and leaves out what is 0."""
    segments: dict[str, dict[str, Any]] = {}
    for span in copy.deepcopy(SPANS):
        segment = segments.setdefault(
            span["segmentId"],
            {
                "traceId": span["traceId"],
                "traceSegmentId": span["segmentId"],
                "service": span["serviceCode"],
                "serviceInstance": span["serviceInstanceName"],
                "spans": [],
            },
        )
        segment["spans"].append(_collected(span))
    return list(segments.values())


def _collected(span: dict[str, Any]) -> dict[str, Any]:
    of = {
        "spanId": span["spanId"],
        "parentSpanId": span["parentSpanId"],
        "startTime": str(span["startTime"]),
        "endTime": str(span["endTime"]),
        "operationName": span["endpointName"],
        "peer": span["peer"],
        "spanType": None if span["type"] == "Entry" else span["type"],
        "spanLayer": span["layer"],
        "isError": span["isError"],
        "tags": span["tags"],
        "refs": [
            {
                "traceId": reference["traceId"],
                "parentTraceSegmentId": reference["parentSegmentId"],
                "parentSpanId": reference["parentSpanId"],
            }
            for reference in span["refs"]
        ],
    }
    return {key: value for key, value in of.items() if value not in (0, None, "", [], False)}


def _lines(values: list[Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


FORMS: dict[str, Callable[[], str]] = {
    "answer": ANSWER.read_text,
    "answer in a line": lambda: json.dumps({"data": {"queryTrace": {"spans": SPANS}}}),
    "answers of several traces": lambda: json.dumps(
        {
            "data": {
                "queryTraces": {
                    "retrievedTimeRange": {"startTime": 1, "endTime": 2},
                    "traces": [{"spans": SPANS[:2]}, {"spans": SPANS[2:]}],
                }
            }
        },
        indent=1,
    ),
    "a list of answers": lambda: json.dumps(
        [{"data": {"trace": {"spans": SPANS[:2]}}}, {"data": {"trace": {"spans": SPANS[2:]}}}], indent=1
    ),
    "a list of spans": lambda: json.dumps(SPANS, indent=1),
    "spans in lines": lambda: _lines(SPANS),
    "a list of segments": lambda: json.dumps(_segments(), indent=1),
    "segments of a collection": lambda: json.dumps({"segments": _segments()}, indent=1),
    "segments in lines": lambda: _lines(_segments()),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_way_of_writing_says_the_same(form: str, tmp_path: Path) -> None:
    text = FORMS[form]().encode()
    assert [reader.form for reader in READERS if reader.recognises(tmp_path, text)] == ["skywalking"]
    found = read_bytes(SkyWalking(), tmp_path, text)
    entry, exit_, local, server, message = found.rows
    assert len({row["trace_id"] for row in found.rows}) == 1
    kinds = [row["kind"] for row in found.rows]
    assert kinds == [Kind.SERVER, Kind.CLIENT, Kind.INTERNAL, Kind.SERVER, Kind.PRODUCER]
    assert "parent_id" not in entry
    assert exit_["parent_id"] == local["parent_id"] == entry["span_id"]
    assert server["parent_id"] == exit_["span_id"]
    assert message["parent_id"] == server["span_id"]
    assert (exit_["start_ns"], exit_["duration_ns"]) == (1_700_000_000_005 * MS, 20 * MS)
    assert (exit_["service"], exit_["peer_service"], exit_["machine"]) == ("front", "cart:7070", "10.0.0.1")
    assert (server["service"], server["name"], local["duration_ns"]) == ("cart", "/cart.Cart/Get", 0)
    assert [row["status"] for row in found.rows] == ["UNAVAILABLE", "OK", "OK", "OK", "ERROR"]
    assert found.troubles == {}
    assert found.notes == {skywalking.RESOLUTION: 1}


def test_one_segment_alone(tmp_path: Path) -> None:
    for indent in (None, 1):
        found = read_bytes(SkyWalking(), tmp_path, json.dumps(_segments()[0], indent=indent).encode())
        assert [row["kind"] for row in found.rows] == [Kind.SERVER, Kind.CLIENT, Kind.INTERNAL]
        assert found.rows[1]["parent_id"] == found.rows[0]["span_id"]


def test_both_sides_become_a_call_and_the_resolution_is_told(tmp_path: Path) -> None:
    assert main(["ingest", str(ANSWER), "--store", str(tmp_path / "store"), "--quiet"]) == 0
    store = Store.open(tmp_path / "store")
    assert (store.manifest.spans, store.manifest.merged, store.manifest.internal) == (3, 4, 1)
    assert skywalking.RESOLUTION in [row["reason"] for row in store.read("trouble").to_pylist()]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"traceId": ""}, "traceId is missing"),
        ({"segmentId": None}, "segmentId is missing"),
        ({"spanId": "x"}, "spanId is no number"),
        ({"startTime": None}, "startTime is missing"),
        ({"endTime": 1e300}, "endTime is no time"),
        ({"endTime": -1}, "endTime is no time"),
    ],
)
def test_a_span_that_cannot_be_is_dropped(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    found = read_bytes(SkyWalking(), tmp_path, _lines([SPANS[0] | change, SPANS[1], 7]).encode())
    assert len(found.rows) == 1
    assert found.troubles == {reason: 1, "the record is no object": 1}


def test_what_comes_before_a_cut_is_kept(tmp_path: Path) -> None:
    text = json.dumps({"data": {"trace": {"spans": SPANS}}}, indent=1)
    found = read_bytes(SkyWalking(), tmp_path, text[: text.rindex('"traceId": "trace-1')].encode())
    assert len(found.rows) == 4
    assert sum(found.troubles.values()) == 1


_LEAF = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(-(2**65), 2**65), st.text(max_size=4), st.just("\ud800")
)
_ANY = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))


@settings(deadline=None, max_examples=150)
@given(data=st.data(), of_segments=st.booleans(), is_lines=st.booleans())
def test_spans_of_any_content_end_in_rows_and_ledger(
    data: st.DataObject, of_segments: bool, is_lines: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = _segments() if of_segments else copy.deepcopy(SPANS)
    for _ in range(data.draw(st.integers(1, 4))):
        holder: Any = data.draw(st.sampled_from(records))
        if of_segments and isinstance(holder.get("spans"), list) and data.draw(st.booleans()):
            holder = next((one for one in holder["spans"] if isinstance(one, dict)), holder)
        holder[data.draw(st.sampled_from(sorted(holder) or ["x"]))] = data.draw(_ANY)
    text = bytearray((_lines(records) if is_lines else json.dumps(records, indent=1)).encode())
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("s") / "x"
    path.write_bytes(text)
    found = read(SkyWalking(), path)
    assert all(row["start_ns"] >= 0 and row["service"] for row in found.rows)
