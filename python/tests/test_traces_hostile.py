"""Jaeger and Zipkin input that is damaged or means harm ends in rows and the ledger, and all is counted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, Read, read_bytes

from scotfree.study.ingest import intake, jaeger, json_stream
from scotfree.study.ingest.jaeger import Jaeger
from scotfree.study.ingest.reader import Reader
from scotfree.study.ingest.zipkin import Zipkin

FORMS: dict[str, Callable[[], Reader]] = {"jaeger.json": Jaeger, "zipkin.json": Zipkin}
RECORDS = {"jaeger.json": 6, "zipkin.json": 4}

_LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.text(max_size=6),
    st.sampled_from(["", "0", "f" * 16, "f" * 40, "NaN", "\x00", "client"]),
)
_ANY = st.recursive(_LEAF, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner))


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document."""
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    else:
        return []
    return [(value, key) for key, _ in inside] + [place for _, part in inside for place in _places(part)]


def _fields_of_spans(document: Any) -> list[tuple[Any, Any]]:
    """Places inside of spans, so that their number stays what it is."""
    spans = document if isinstance(document, list) else [s for trace in document["data"] for s in trace["spans"]]
    return [place for span in spans for place in _places(span)]


def _read(name: str, text: bytes, folder: Path) -> Read:
    found = read_bytes(FORMS[name](), folder, text)
    for row in found.rows:
        assert row["start_ns"] >= 0
        assert row["duration_ns"] >= 0
        assert row["service"]
    return found


@settings(deadline=None, max_examples=150)
@given(data=st.data(), name=st.sampled_from(list(FORMS)), indent=st.sampled_from([None, 1]))
def test_spans_of_any_content_are_all_counted(
    data: st.DataObject, name: str, indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    document = json.loads((FIXTURES / name).read_text())
    for _ in range(data.draw(st.integers(1, 4))):
        holder, key = data.draw(st.sampled_from(_fields_of_spans(document)))
        if isinstance(holder, dict) and data.draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = data.draw(_ANY)
    # Python writes NaN and Infinity, which are no JSON.
    text = json.dumps(document, indent=indent).encode()
    found = _read(name, text, tmp_path_factory.mktemp("j"))
    is_whole = b"NaN" not in text and b"Infinity" not in text and not _is_too_large(document)
    assert found.records == RECORDS[name] or not is_whole or "not JSON" in found.troubles
    assert found.records >= 1


def _is_too_large(document: Any) -> bool:
    return any(isinstance(holder[key], int) and abs(holder[key]) >= 2**63 for holder, key in _places(document))


@settings(deadline=None, max_examples=150)
@given(data=st.data(), name=st.sampled_from(list(FORMS)), indent=st.sampled_from([None, 1]))
def test_any_bytes_end_in_rows_and_ledger(
    data: st.DataObject, name: str, indent: int | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = bytearray(json.dumps(json.loads((FIXTURES / name).read_text()), indent=indent).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 3))] = data.draw(
            st.one_of(st.binary(max_size=4), st.sampled_from([b"{", b"}", b"[", b"]", b'"', b"\\", b"\n"]))
        )
    del text[data.draw(st.integers(0, len(text))) :]
    _read(name, bytes(text), tmp_path_factory.mktemp("j"))


@settings(deadline=None, max_examples=60)
@given(cut=st.integers(1, 10_000), chunk=st.integers(1, 300))
def test_spans_before_a_cut_are_kept(cut: int, chunk: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    spans = [{"traceId": "1", "id": f"{at + 1:x}", "timestamp": 1, "duration": 1} for at in range(9)]
    whole = json.dumps(spans, indent=1).encode()
    text = whole[: cut % len(whole)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "CHUNK_BYTES", chunk)
        found = _read("zipkin.json", text, tmp_path_factory.mktemp("j"))
    assert len(found.rows) == text.count(b"}")
    assert found.ledger.dropped() == (1 if text else 0)


def test_a_damaged_line_costs_that_line(tmp_path: Path) -> None:
    spans = json.loads((FIXTURES / "zipkin.json").read_text())[:3]
    lines = [json.dumps(span) for span in spans]
    broken = [lines[0][:-40], lines[1], "}{", lines[2], '{"deep":' + "[" * 5000]
    found = _read("zipkin.json", "\n".join(broken).encode(), tmp_path)
    assert [row["record"] for row in found.rows] == [1, 3]
    assert found.troubles == {"not JSON": 3}


def test_a_line_that_is_too_long_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LINE_BYTES_MAX", 1000)
    spans = json.loads((FIXTURES / "zipkin.json").read_text())[:3]
    spans[1]["name"] = "x" * 5000
    found = _read("zipkin.json", "\n".join(map(json.dumps, spans)).encode(), tmp_path)
    assert [row["record"] for row in found.rows] == [0, 2]
    assert found.troubles == {"the line is too long": 1}


@pytest.mark.parametrize("name", FORMS)
def test_a_record_that_is_too_long_is_skipped(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", 512)
    monkeypatch.setattr(json_stream, "ELEMENT_BYTES_MAX", 5000)
    document = json.loads((FIXTURES / name).read_text())
    longer = copy.deepcopy(document)
    (longer if isinstance(longer, list) else longer["data"][0]["spans"])[0]["name"] = "}" * 9000
    before = _read(name, json.dumps(document, indent=1).encode(), tmp_path)
    found = _read(name, json.dumps(longer, indent=1).encode(), tmp_path)
    assert found.troubles == before.troubles | {"the record is too long": 1}
    assert len(found.rows) == len(before.rows) - 1


def test_a_trace_too_long_to_wait_has_its_processes_from_a_second_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    span = {"spanID": "1", "startTime": 1, "duration": 1, "processID": "p"}
    traces = [
        {"spans": [span | {"traceID": f"{at}"}] * 2, "processes": {"p": {"serviceName": f"s{at}"}}}
        for at in range(1, 4)
    ]
    monkeypatch.setattr(jaeger, "_WAITING_BYTES_MAX", 1)
    found = _read("jaeger.json", json.dumps({"data": traces}, indent=1).encode(), tmp_path)
    assert [row["service"] for row in found.rows] == ["s1", "s1", "s2", "s2", "s3", "s3"]


@pytest.mark.parametrize("time", [-1, -0.5, 2**63, 2**62, 1e19, True, "x", "-1", [1], {}])
@pytest.mark.parametrize("key", ["timestamp", "duration"])
def test_what_is_no_time_is_dropped(key: str, time: Any, tmp_path: Path) -> None:
    span = {"traceId": "1", "id": "1", "timestamp": 1, "duration": 1} | {key: time}
    found = _read("zipkin.json", json.dumps([span]).encode(), tmp_path)
    assert (found.rows, found.troubles) == ([], {f"{key} is no time": 1})


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '[{"a":' * 50_000, '"' * 9, "\\" * 9, "]", "", "null", "[1, true]"]
)
@pytest.mark.parametrize("name", FORMS)
def test_what_is_no_trace_gives_no_row(name: str, text: str, tmp_path: Path) -> None:
    assert _read(name, text.encode(), tmp_path).rows == []


_TEXT = st.text(st.sampled_from('ab"\\{}[]:,'), max_size=12)


@settings(deadline=None, max_examples=100)
@given(values=st.lists(st.dictionaries(_TEXT, _TEXT, max_size=3), max_size=5), chunk=st.integers(1, 9))
def test_strings_full_of_brackets_do_not_mislead(
    values: list[dict[str, str]], chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("s") / "x"
    path.write_text(json.dumps(values))
    with pytest.MonkeyPatch.context() as patch, path.open("rb") as file:
        patch.setattr(json_stream, "CHUNK_BYTES", chunk)
        found = [e.text for e in json_stream.elements(file, lambda path, _: path == (), 2) if e.text is not None]
    assert [json.loads(text) for text in found] == values
