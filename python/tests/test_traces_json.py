"""Jaeger and Zipkin, from their own small fixtures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reading import FIXTURES, INPUT, read, read_bytes

from scotfree.study.ingest import json_stream
from scotfree.study.ingest.jaeger import Jaeger
from scotfree.study.ingest.zipkin import Zipkin
from scotfree.study.schema import Kind

US = 1_700_000_000_000_000
JAEGER_ROWS: list[dict[str, Any]] = [
    {
        "trace_id": bytes(15) + b"\xa1",
        "span_id": 0xB1,
        "kind": Kind.CLIENT,
        "is_shared": False,
        "start_ns": US * 1000,
        "duration_ns": 9_000_000,
        "service": "front",
        "peer_service": "cart",
        "name": "checkout",
        "machine": "m1",
        "status": "OK",
        "client_send_queue_ns": 1500,
        "req_bytes": 120,
        "input": INPUT,
        "record": 0,
    },
    {
        "trace_id": bytes(15) + b"\xa1",
        "span_id": 0xB2,
        "parent_id": 0xB1,
        "kind": Kind.SERVER,
        "is_shared": False,
        "start_ns": (US + 1000) * 1000,
        "duration_ns": 7_000_000,
        "service": "cart",
        "name": 'Cart.Get "{[',
        "cluster": "east",
        "status": "NOT_FOUND",
        "input": INPUT,
        "record": 1,
    },
    {
        "trace_id": bytes(15) + b"\xa1",
        "span_id": 0xB3,
        "parent_id": 0xB2,
        "kind": Kind.UNKNOWN,
        "is_shared": False,
        "start_ns": (US + 2000) * 1000,
        "duration_ns": 1000,
        "service": "unknown",
        "name": "later",
        "status": "ERROR",
        "input": INPUT,
        "record": 2,
    },
    {
        "trace_id": b"\xff" * 8 + bytes(7) + b"\xa2",
        "span_id": -1,
        "parent_id": 0xC1,
        "kind": Kind.UNKNOWN,
        "is_shared": False,
        "start_ns": US * 1000,
        "duration_ns": 0,
        "service": "front",
        "name": "root",
        "status": "OK",
        "input": INPUT,
        "record": 5,
    },
]


def test_jaeger_as_its_api_gives_it() -> None:
    found = read(Jaeger(), FIXTURES / "jaeger.json")
    assert found.rows == JAEGER_ROWS
    assert found.troubles == {"duration is missing": 1, "traceID is not hexadecimal of 32 digits": 1}
    assert found.notes == {"no service is named": 1}


@pytest.mark.parametrize("form", ["one line", "indented", "a trace a line", "array"])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_jaeger_in_other_layouts_and_chunks(
    form: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    document = json.loads((FIXTURES / "jaeger.json").read_text())
    text = {
        "one line": json.dumps(document),
        "indented": json.dumps(document, indent=2),
        "a trace a line": "\n".join(json.dumps(trace) for trace in document["data"]),
        "array": json.dumps(document["data"], indent=1),
    }[form]
    assert read_bytes(Jaeger(), tmp_path, text.encode()).rows == JAEGER_ROWS


def test_zipkin() -> None:
    found = read(Zipkin(), FIXTURES / "zipkin.json")
    client, server, producer = found.rows
    assert client == {
        "trace_id": bytes.fromhex("463ac35c9f6413ad48485a3953bb6124"),
        "span_id": 0xA2FB4A1D1A96D312 - 2**64,
        "parent_id": 0x20000000000001,
        "kind": Kind.CLIENT,
        "is_shared": False,
        "start_ns": 1472470996199000_000,
        "duration_ns": 207_000_000,
        "service": "front",
        "peer_service": "cart",
        "name": "get /cart",
        "machine": "10.0.0.1",
        "peer_machine": "10.0.0.2",
        "status": "UNAVAILABLE",
        "input": INPUT,
        "record": 0,
    }
    assert server["span_id"] == client["span_id"]
    assert (server["is_shared"], server["kind"], server["status"]) == (True, Kind.SERVER, "ERROR")
    assert server["machine"] == "fe80::1"
    assert producer["trace_id"] == bytes(8) + bytes.fromhex("48485a3953bb6124")
    assert (producer["service"], producer["kind"]) == ("unknown", Kind.PRODUCER)
    assert found.troubles == {"duration is missing": 1}


@pytest.mark.parametrize("chunk", [1, 13, 1 << 20])
@pytest.mark.parametrize("form", ["lines", "nested", "arrays a line", "deep"])
def test_zipkin_in_other_layouts(form: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    spans = json.loads((FIXTURES / "zipkin.json").read_text())
    text = {
        "lines": "\n".join(json.dumps(span) for span in spans),
        "nested": json.dumps([spans[:2], spans[2:]], indent=2),
        "arrays a line": "\n".join((json.dumps(spans[:2]), "", json.dumps(spans[2:]))),
        "deep": json.dumps([[[spans[:3]], [spans[3:]]]], indent=2),
    }[form]
    assert read_bytes(Zipkin(), tmp_path, text.encode()).rows == read(Zipkin(), FIXTURES / "zipkin.json").rows
