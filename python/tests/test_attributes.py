"""Which attribute counts where several say the same, in Python and in Rust alike; and one name for a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read_bytes

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest import attributes, names
from scotfree.study.ingest.otlp_json import OtlpJson
from scotfree.study.ingest.run import ingest
from scotfree.study.report.overview import overview
from scotfree.study.store import Store

START = 1_700_000_000_000_000_000


def _span(number: int, parent: int, kind: int, name: str, **said: Any) -> dict[str, Any]:
    return {
        "traceId": "0" * 31 + "1",
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "name": name,
        "kind": kind,
        "startTimeUnixNano": str(START + number),
        "endTimeUnixNano": str(START + number + 1000),
        "attributes": [_attribute(key, value) for key, value in said.items()],
    }


def _attribute(key: str, value: Any) -> dict[str, Any]:
    return {"key": key, "value": {"intValue": value} if isinstance(value, int) else {"stringValue": value}}


def _line(service: str, *spans: dict[str, Any]) -> bytes:
    resource = {"attributes": [_attribute("service.name", service)]}
    entry = {"resource": resource, "scopeSpans": [{"spans": list(spans)}]}
    return json.dumps({"resourceSpans": [entry]}).encode() + b"\n"


@pytest.mark.parametrize(
    ("said", "column", "expected"),
    [
        ({"http.request.body.size": 5}, "req_bytes", 5),
        ({"http.response.body.size": 5}, "resp_bytes", 5),
        ({"http.request_content_length": 5}, "req_bytes", 5),
        ({"http.request_content_length": 5, "http.request_content_length_uncompressed": 9}, "req_bytes", 9),
        ({"http.response_content_length": 5, "http.response.body.size": 7}, "resp_bytes", 7),
        ({"messaging.message.body.size": 5, "messaging.message.envelope.size": 8}, "req_bytes", 5),
        ({"messaging.message.body.size": 5, "messaging.message.envelope.size": 8}, "req_wire_bytes", 8),
        ({"messaging.message_payload_size_bytes": 3}, "req_bytes", 3),
        ({"http.request.body.size": 5, "rpc.request.size": 6}, "req_bytes", 6),
        ({"http.request.size": 50, "http.request.body.size": 5}, "req_wire_bytes", 50),
        ({"k8s.pod.name": "cart-7f9"}, "machine", "cart-7f9"),
        ({"service.instance.id": "i-1", "container.id": "c-1"}, "machine", "i-1"),
        ({"container.id": "c-1"}, "machine", "c-1"),
        ({"service.instance.id": "i-1", "k8s.pod.name": "cart-7f9"}, "machine", "cart-7f9"),
        ({"k8s.pod.name": "cart-7f9", "k8s.node.name": "n3"}, "machine", "n3"),
        ({"k8s.pod.name": "cart-7f9", "host.name": "h1"}, "machine", "h1"),
    ],
)
def test_of_several_the_first_counts_in_python_and_in_rust(
    said: dict[str, Any], column: str, expected: Any, tmp_path: Path
) -> None:
    row: dict[str, Any] = {}
    assert attributes.take(row, said) == []
    assert row[column] == expected
    (found,) = read_bytes(OtlpJson(), tmp_path, _line("cart", _span(1, 0, 2, "Get", **said))).rows
    assert found[column] == expected


FULL = "shop.v1.Cart/Get"
NAMES = [f"/{FULL}", FULL, "/cart", "/api/v1.2/Get", "/shop.Cart/get", "/shop.Cart/Put", "", None]


def test_only_full_names_of_grpc_lose_their_slash() -> None:
    texts = pa.array(NAMES, pa.string())
    assert names.bare(texts).to_pylist() == [FULL, *NAMES[1:5], "shop.Cart/Put", "", None]
    assert names.twice(texts) == 1
    assert names.twice(pa.array([], pa.string())) == 0


def _names(store: Store) -> set[str]:
    tables = [pq.read_table(file, partitioning=None) for file in store.files("span")]
    return {row["method"] for row in pa.concat_tables(tables).to_pylist()}


def test_a_method_with_and_without_a_slash_is_one_and_the_scope_says_so(tmp_path: Path) -> None:
    calls = [_span(at, 0, 2, "/shop.Cart/Get" if at % 2 else "shop.Cart/Get") for at in range(1, 9)]
    (tmp_path / "a.jsonl").write_bytes(_line("cart", *calls[:3]))
    (tmp_path / "b.jsonl").write_bytes(_line("cart", *calls[3:], _span(9, 0, 2, "/shop.Cart/Put")))
    store = ingest([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "shop.store")
    assert _names(store) == {"shop.Cart/Get", "shop.Cart/Put"}
    assert (names.TWICE, 1) in [(row["reason"], row["count"]) for row in store.read("trouble").to_pylist()]
    said = dict(overview(Study(store, DuckEngine(store, memory="500MB", threads=2))).scope)["Calls"]
    assert "2 methods (1 name with and without a slash before it counted once)" in said
