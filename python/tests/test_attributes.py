"""Which attribute counts where several say the same, in Python and in Rust alike; and one name for a method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reading import read_bytes
from sides import by_id, calls

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest import addresses, attributes, names
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
        ({"net.peer.name": "pay.old", "server.address": "pay"}, "peer_address", "pay"),
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


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("pay", "pay"),
        ("pay.shop.svc:8080", "pay.shop.svc"),
        ("10.0.0.7:443", "10.0.0.7"),
        ("[2001:db8::7]:443", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::7"),
        ("/run/pay.sock", "/run/pay.sock"),
        ("localhost:8080", None),
        ("127.0.0.1", None),
        ("[::1]:80", None),
        ("0.0.0.0", None),
        (" ", None),
    ],
)
def test_an_address_names_a_host_without_its_port(address: str, expected: str | None) -> None:
    assert addresses.host(address) == expected


def test_a_client_s_address_names_its_callee_where_nothing_else_does(tmp_path: Path) -> None:
    """Two dependencies of one client are two, and what a server's record or the client itself says goes before."""
    front = [
        _span(1, 0, 2, "GET /", **{"server.address": "front.shop"}),
        _span(2, 1, 3, "POST", **{"server.address": "pay", "server.port": 8080}),
        _span(3, 1, 3, "POST", **{"net.peer.name": "stock:9090"}),
        _span(4, 1, 3, "POST", **{"server.address": "mail.internal", "peer.service": "mail"}),
        _span(5, 1, 3, "POST", **{"server.address": "gateway"}),
        _span(7, 1, 3, "POST", **{"server.address": "localhost"}),
        # A message's broker.
        _span(8, 1, 4, "send", **{"server.address": "kafka"}),
    ]
    cart = _span(6, 5, 2, "POST /cart", **{"server.address": "cart.shop"})
    (tmp_path / "calls.json").write_bytes(_line("front", *front) + _line("cart", cart))
    store = ingest([tmp_path / "calls.json"], tmp_path / "store")
    found = {span: (call["service"], call.get("client_service")) for span, call in by_id(store).items()}
    assert found == {
        1: ("front", None),
        2: ("pay", "front"),
        3: ("stock", "front"),
        4: ("mail", "front"),
        5: ("cart", "front"),
        7: ("callee of front", "front"),
        8: ("kafka", "front"),
    }


def test_a_client_s_address_is_read_from_jaeger_zipkin_and_tables(tmp_path: Path) -> None:
    ids = {"trace": "0" * 31 + "1", "span": "0" * 15 + "2"}
    tags = [{"key": "span.kind", "value": "client"}, {"key": "net.peer.name", "value": "pay"}]
    jaeger = {
        "traceID": ids["trace"],
        "spanID": ids["span"],
        "operationName": "POST",
        "startTime": START // 1000,
        "duration": 9,
        "tags": tags,
        "process": {"serviceName": "front", "tags": []},
    }
    zipkin = {
        "traceId": ids["trace"],
        "id": ids["span"],
        "name": "POST",
        "kind": "CLIENT",
        "timestamp": START // 1000,
        "duration": 9,
        "localEndpoint": {"serviceName": "front"},
        "tags": {"server.address": "pay:80"},
    }
    head = "trace_id,span_id,service,name,kind,start_ns,duration_ns,attributes.server.address"
    row = f"{ids['trace']},{ids['span']},front,POST,client,{START},9000,pay"
    texts = {"jaeger": json.dumps(jaeger), "zipkin": json.dumps([zipkin]), "csv": f"{head}\n{row}\n"}
    for form, text in texts.items():
        (tmp_path / form).write_text(text)
        (call,) = calls(ingest([tmp_path / form], tmp_path / f"{form}.store"))
        assert (call["service"], call["client_service"]) == ("pay", "front"), form


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
    spans = [_span(at, 0, 2, "/shop.Cart/Get" if at % 2 else "shop.Cart/Get") for at in range(1, 9)]
    (tmp_path / "a.jsonl").write_bytes(_line("cart", *spans[:3]))
    (tmp_path / "b.jsonl").write_bytes(_line("cart", *spans[3:], _span(9, 0, 2, "/shop.Cart/Put")))
    store = ingest([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "shop.store")
    assert _names(store) == {"shop.Cart/Get", "shop.Cart/Put"}
    assert (names.TWICE, 1) in [(row["reason"], row["count"]) for row in store.read("trouble").to_pylist()]
    said = dict(overview(Study(store, DuckEngine(store, memory="500MB", threads=2))).scope)["Calls"]
    assert "2 methods (1 name with and without a slash before it counted once)" in said
