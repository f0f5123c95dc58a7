"""OTLP's JSON becomes the rows that its protobuf becomes, and whatever is wrong is in the ledger."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from otlp_spans import rows, traces

from scotfree.study.ingest import otlp_json
from scotfree.study.ingest.opening import ENDS_EARLY
from scotfree.study.ingest.otlp_json import OtlpJson
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.reader import Source
from scotfree.study.trouble import Ledger

SPAN = {
    "traceId": "0102030405060708090a0b0c0d0e0f10",
    "spanId": "0102030405060708",
    "name": "Get",
    "kind": 3,
    "startTimeUnixNano": "1700000000000000000",
    "endTimeUnixNano": "1700000000000000042",
}


def request(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": list(spans)}]}]}


def read(path: Path, reader: OtlpJson | OtlpProto | None = None) -> tuple[list[dict[str, Any]], dict[str, int]]:
    source = Source(path, 3, Ledger())
    tables = [batch.rows for batch in (reader or OtlpJson()).read(source)]
    counts = {row["reason"]: row["count"] for row in source.ledger.table().to_pylist()}
    found = pa.concat_tables(tables).to_pylist()
    records = [row["record"] for row in found]
    assert records == sorted(set(records))
    assert (records[-1] if records else -1) < len(found) + source.ledger.dropped()
    return found, counts


def read_lines(folder: Path, *lines: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "spans.json").write_text("\n".join(texts) + "\n")
    return read(folder / "spans.json")


def hexadecimal(value: Any) -> Any:
    """Protobuf's own JSON with ids as OTLP writes them."""
    if isinstance(value, list):
        return [hexadecimal(element) for element in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64decode(inner).hex() if key in ("traceId", "spanId", "parentSpanId") else hexadecimal(inner)
        for key, inner in value.items()
    }


@given(data=traces(), form=st.sampled_from(["base64", "hex", "snake", "numbers", "pretty"]))
@settings(max_examples=60, deadline=None)
def test_rows_are_those_of_protobuf(tmp_path_factory: pytest.TempPathFactory, data: TracesData, form: str) -> None:
    folder = tmp_path_factory.mktemp("otlp")
    of = json_format.MessageToDict(
        data, preserving_proto_field_name=form == "snake", use_integers_for_enums=form == "numbers"
    )
    of = of if form in ("base64", "snake") else hexadecimal(of)
    (folder / "spans.json").write_text(json.dumps(of, indent=2 if form == "pretty" else None) + "\n")
    (folder / "spans.pb").write_bytes(data.SerializeToString())
    found, counts = read(folder / "spans.json")
    assert found == rows(data)
    assert (found, counts) == read(folder / "spans.pb", OtlpProto())


def test_records_are_numbered_through_lines_and_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scotfree.study.ingest.otlp.BATCH_ROWS_MAX", 3)
    found, counts = read_lines(tmp_path, *[request(SPAN, SPAN)] * 5)
    assert [row["record"] for row in found] == list(range(10))
    assert counts == {}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"traceId": "0102"}, "a trace's id is not of 16 bytes, or zero"),
        ({"traceId": 17}, "a trace's id is not of 16 bytes, or zero"),
        ({"spanId": "zz02030405060708"}, "a span's id is not of 8 bytes, or zero"),
        ({"spanId": None}, "a span's id is not of 8 bytes, or zero"),
        ({"startTimeUnixNano": "noon"}, "a start or an end is missing"),
        ({"endTimeUnixNano": None}, "a start or an end is missing"),
        ({"endTimeUnixNano": 5}, "it ends before it starts"),
        ({"endTimeUnixNano": "-5"}, "a time is beyond the year 2262"),
    ],
)
def test_what_is_no_span_is_dropped(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    found, counts = read_lines(tmp_path, request(SPAN, SPAN | change, SPAN))
    assert [row["record"] for row in found] == [0, 2]
    assert counts[reason] == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kind": "SPAN_KIND_FOO"}, "a kind is unknown"),
        ({"kind": -3}, "a kind is unknown"),
        ({"parentSpanId": "07"}, "a parent's id is not of 8 bytes"),
        ({"name": {"not": "a text"}}, "a value is not of its field's kind and was left out"),
        (
            {"attributes": [{"key": "rpc.request.size", "value": {"intValue": "NaN"}}]},
            "attribute rpc.request.size is no such number",
        ),
        (
            {"attributes": [{"key": "rpc.cpu.cycles", "value": {"doubleValue": "NaN"}}]},
            "attribute rpc.cpu.cycles is no such number",
        ),
        ({"name": "x" * 100_000}, "a text is longer than 1024 bytes and was cut"),
    ],
)
def test_what_can_be_kept_is_kept_and_told(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    found, counts = read_lines(tmp_path, request(SPAN | change))
    assert len(found) == 1
    assert counts == {reason: 1}


def test_a_bad_line_costs_itself(tmp_path: Path) -> None:
    good = request(SPAN)
    found, counts = read_lines(tmp_path, good, "{broken", good, "17", json.dumps(good)[:-6], "[]", good)
    # Of a line that breaks off, the spans before that place are whole.
    assert [row["record"] for row in found] == [0, 2, 4, 7]
    assert counts == {"not JSON": 3, ENDS_EARLY: 1}


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_json, "LINE_BYTES_MAX", 1000)
    good = json.dumps(request(SPAN))
    found, counts = read_lines(tmp_path, good, '{"resourceSpans":[' + " " * 5000 + "]}", good)
    assert [row["record"] for row in found] == [0, 2]
    assert counts == {otlp_json.TOO_LONG: 1}


def test_a_link_marks_a_hedge(tmp_path: Path) -> None:
    link = {"attributes": [{"key": "scotfree.link", "value": {"stringValue": "hedge"}}]}
    other = {"attributes": [{"key": "scotfree.link", "value": {"stringValue": "batch"}}]}
    found, _ = read_lines(tmp_path, request(SPAN | {"links": [other, link]}, SPAN | {"links": [other]}))
    assert [row["is_hedge"] for row in found] == [True, None]


def test_a_cut_gzip_keeps_what_came_before(tmp_path: Path) -> None:
    text = "".join(json.dumps(request(SPAN | {"name": str(number)})) + "\n" for number in range(3000))
    whole = gzip.compress(text.encode())
    (tmp_path / "spans.json.gz").write_bytes(whole[: len(whole) // 2])
    found, counts = read(tmp_path / "spans.json.gz")
    assert [row["name"] for row in found] == [str(number) for number in range(len(found))]
    assert 1000 < len(found) < 2000
    assert ENDS_EARLY in counts


@given(data=traces(), seed=st.data())
@settings(max_examples=60, deadline=None)
def test_any_bytes_end_in_rows_or_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, data: TracesData, seed: st.DataObject
) -> None:
    text = bytearray(json.dumps(hexadecimal(json_format.MessageToDict(data))).encode() + b"\n")
    for _ in range(seed.draw(st.integers(0, 3))):
        text[seed.draw(st.integers(0, len(text) - 1))] = seed.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("otlp") / "spans.json"
    path.write_bytes(text[: seed.draw(st.integers(0, len(text)))])
    found, _ = read(path)
    assert len(found) <= sum(1 for _ in rows(data))
