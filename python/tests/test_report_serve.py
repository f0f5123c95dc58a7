"""The server behind a report: from all services to one call, for this host only, hostile questions refused."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from http.server import ThreadingHTTPServer
from pathlib import Path
from socket import create_connection, socket

import pyarrow as pa
import pytest

from scotfree.study import schema
from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.report.serve.queries import ROWS_MAX, Queries
from scotfree.study.report.serve.server import HOST, serve
from scotfree.study.store import Manifest, Store, partition_folder, write_manifest, write_table

EVIL = "<script>alert(1)</script>' OR 1=1 --"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreadingHTTPServer]:
    folder = tmp_path_factory.mktemp("serve") / "fleet"
    generate(folder, FleetOptions(spans=5_000, methods=30, partitions=2, metrics=False, profiles=False))
    running = serve(Queries(Store.open(folder)), 0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


def ask(server: ThreadingHTTPServer, path: str, host: str | None = None, verb: str = "GET") -> tuple[int, str]:
    port = server.server_address[1]
    connection = HTTPConnection(HOST, port, timeout=30)
    connection.request(verb, path, headers={"Host": host or f"{HOST}:{port}"})
    answer: HTTPResponse = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def links(html: str, to: str) -> list[str]:
    return [unescape(link) for link in re.findall(rf'href="({to}[^"]*)"', html)]


def test_from_the_fleet_to_the_nine_stages_of_one_call(server: ThreadingHTTPServer) -> None:
    status, fleet = ask(server, "/")
    assert status == 200
    status, service = ask(server, links(fleet, "/service")[0])
    assert status == 200
    status, method = ask(server, links(service, "/method")[0])
    assert status == 200
    assert "The slowest calls" in method
    assert "Calls around the P95" in method
    status, call = ask(server, links(method, "/trace")[0])
    assert status == 200
    for stage in schema.STAGES:
        assert stage.split("_")[0] in call
    assert call[: call.index("The calls of this trace")].count("<rect") == len(schema.STAGES)


def test_a_call_has_its_trace_as_a_waterfall_with_hexadecimal_ids(server: ThreadingHTTPServer) -> None:
    _, fleet = ask(server, "/")
    _, service = ask(server, links(fleet, "/service")[0])
    _, method = ask(server, links(service, "/method")[0])
    link = links(method, "/trace")[0]
    assert re.fullmatch(r"/trace\?trace=[0-9a-f]{32}&span=[0-9a-f]{16}", link)
    _, call = ask(server, link)
    waterfall = call[call.index("The calls of this trace") :]
    assert "padding-left:0.8rem" in waterfall and 'class="critical"' in waterfall
    assert f"<code>{link[-16:]}</code>" in waterfall and f"<code>{link[-16:]}</code>" in call[: call.index("<h2>")]
    assert all(ask(server, each)[0] == 200 for each in links(waterfall, "/trace")[:3])


def test_a_trace_is_found_by_its_id_as_it_is_pasted(tmp_path: Path) -> None:
    trace = bytes(8) + bytes.fromhex("00abcdef01234567")
    rows = [call_of("Cart", "Get", 1) | {"trace_id": trace, "span_id": -2}]
    with serving(tmp_path, rows) as running:
        assert '<form action="/trace" method="get"' in ask(running, "/")[1]
        assert "10\u202fns as its client saw it" in ask(running, "/trace?trace=abcdef01234567")[1]
        for pasted in (
            "abcdef01234567",
            "00ABCDEF01234567",
            "%20" + trace.hex() + "%20",
            trace.hex() + "&span=fffffffffffffffe",
        ):
            status, html = ask(running, f"/trace?trace={pasted}")
            assert status == 200 and "<code>fffffffffffffffe</code>" in html, pasted
        assert ask(running, "/trace?trace=abcdef01234568")[0] == 404
        assert ask(running, f"/trace?trace={trace.hex()}&span=1")[0] == 404
        assert ask(running, "/trace?trace=" + "0" * 33)[0] == 400


def test_a_call_without_its_client_s_record_is_told_by_its_server(tmp_path: Path) -> None:
    with serving(tmp_path, [call_of("Cart", "Get") | {"total_ns": None, "server_app_ns": 7}]) as running:
        html = ask(running, "/trace?trace=0")[1]
    assert "record is not there: 7\u202fns as its server saw it; OK" in html


def test_a_trace_of_many_calls_says_how_many_are_not_shown(tmp_path: Path) -> None:
    rows = [call_of("Cart", "Get", at) | {"trace_id": bytes(16)} for at in range(ROWS_MAX + 3)]
    with serving(tmp_path, rows) as running:
        html = ask(running, "/trace?trace=0")[1]
    assert "and 3 others, which began later." in html


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/method?service=a%27%20OR%201=1&method=b", 404),
        ("/method?service=a&service=b&method=c", 400),
        ("/method?service=a", 400),
        ("/method", 400),
        ("/service?name=" + "x" * 1001, 400),
        ("/service?name=%27%20OR%201%3D1%20--", 404),
        ("/trace?trace=zz&span=1", 400),
        ("/trace?trace=" + "0" * 32 + "&span=1", 404),
        ("/trace?trace=" + "0" * 32 + "&span=" + "9" * 19, 400),
        ("/?a;b", 400),
        ("/../../etc/passwd", 404),
        ("http://[::1/", 400),
    ],
)
def test_hostile_questions_are_refused(server: ThreadingHTTPServer, path: str, status: int) -> None:
    assert ask(server, path)[0] == status


def test_a_page_of_another_name_for_this_machine_reads_nothing(server: ThreadingHTTPServer) -> None:
    status, html = ask(server, "/", host="evil.example:80")
    assert status == 421
    assert "<table" not in html


def test_nothing_but_reading(server: ThreadingHTTPServer) -> None:
    assert ask(server, "/", verb="POST")[0] == 501
    assert ask(server, "/", verb="DELETE")[0] == 501
    assert ask(server, "/", verb="HEAD") == (200, "")


def test_many_wait_until_they_are_taken(tmp_path: Path) -> None:
    """None is turned away by the system while the server is busy; this one does not even run."""
    write_manifest(tmp_path, Manifest())
    with serve(Queries(Store.open(tmp_path)), 0) as idle, ExitStack() as waiting:
        for _ in range(100):
            waiting.enter_context(create_connection((HOST, idle.server_port), timeout=5))


def test_a_store_that_is_gone_is_told(tmp_path: Path) -> None:
    generate(tmp_path / "fleet", FleetOptions(spans=200, methods=20, partitions=1, metrics=False, profiles=False))
    with serve(Queries(Store.open(tmp_path / "fleet")), 0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        shutil.rmtree(tmp_path / "fleet")
        try:
            status, html = ask(running, "/")
        finally:
            running.shutdown()
            thread.join()
    assert status == 503
    assert "it was written to or removed meanwhile" in html


@pytest.mark.parametrize(("error", "is_told"), [(ConnectionResetError(), False), (ValueError(), True)])
def test_who_goes_away_is_no_fault(
    server: ThreadingHTTPServer, capsys: pytest.CaptureFixture[str], error: Exception, is_told: bool
) -> None:
    try:
        raise error
    except Exception:
        server.handle_error(socket(), (HOST, 1))
    assert bool(capsys.readouterr().err) == is_told


def test_the_server_is_on_the_loopback_address(server: ThreadingHTTPServer) -> None:
    assert server.server_address[0] == "127.0.0.1"


def call_of(service: str, method: str, index: int = 0) -> dict[str, object]:
    """A call of which no stage is known."""
    return {
        "trace_id": bytes([index // 256, index % 256] + [0] * 14),
        "span_id": index,
        "start_ns": 0,
        "method_id": index,
        "service": service,
        "method": method,
        "status": "OK",
        "total_ns": 10,
        "provenance": 0,
    }


@contextmanager
def serving(folder: Path, rows: list[dict[str, object]]) -> Iterator[ThreadingHTTPServer]:
    """A server of a store of these calls."""
    write_table(pa.Table.from_pylist(rows, schema=schema.SPAN), partition_folder(folder, 0) / "part.parquet")
    write_manifest(folder, Manifest(partitions=1))
    running = serve(Queries(Store.open(folder)), 0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    try:
        yield running
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def test_what_has_no_name_can_be_seen_and_opened(tmp_path: Path) -> None:
    with serving(tmp_path, [call_of("", "")]) as running:
        path = "/"
        for to in ("/service", "/method", "/trace"):
            status, html = ask(running, path)
            assert status == 200 and "(no name)" in html
            path = links(html, to)[0]
        status, html = ask(running, path)
        assert status == 200 and "<h1>A call of (no name)</h1>" in html
        # What is not known is no share of 0.
        assert "0\u202f%" not in html


def test_names_from_data_stay_text_and_lists_end(tmp_path: Path) -> None:
    with serving(tmp_path, [call_of(EVIL + str(index), EVIL, index) for index in range(ROWS_MAX + 5)]) as running:
        _, html = ask(running, "/")
        assert "<script" not in html
        assert html.count("/service?name=") == ROWS_MAX
        status, html = ask(running, links(html, "/service")[0])
        assert status == 200
        assert "<script" not in html
