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
from scotfree.study.ingest.clean import NAME_CHARACTERS_MAX
from scotfree.study.report.serve.queries import ROWS_MAX, Queries
from scotfree.study.report.serve.server import HOST, Limits, Pages, serve, serve_latest
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


def test_an_entry_method_has_its_server_s_times_and_says_so(tmp_path: Path) -> None:
    """Nobody who calls it keeps records: the commonest case of a page's first method."""
    entries = [
        call_of("web", "GET /", at) | {"method_id": 7, "total_ns": None, "server_app_ns": 1_000 * at}
        for at in range(1, 41)
    ]
    # One that its client did see does not speak for the others, and is as long as that says.
    entries.append(call_of("web", "GET /", 41) | {"method_id": 7, "total_ns": 90_000, "server_app_ns": 80_000})
    with serving(tmp_path, entries) as running:
        services, methods = (ask(running, path)[1] for path in ("/", "/service?name=web"))
        html = ask(running, "/method?service=web&method=GET%20%2F")[1]
    assert (
        "P50 20\u202fµs, P95 38\u202fµs, P99 40\u202fµs (as its server saw it), tax 11.1\u202f% of the time"
        in html
    )
    for page, title, name in ((services, "All services", "web"), (methods, "Its methods", "GET /")):
        assert table(page, title)[1][0][:5] == [
            f"{name}as its server saw it",
            "41",
            "0\u202f%",
            "20\u202fµs",
            "38\u202fµs",
        ]
    slowest = table(html, "The slowest calls", head=False)[1]
    assert [row[0] for row in slowest[:3]] == [
        "90\u202fµs",
        "40\u202fµsas its server saw it",
        "39\u202fµsas its server saw it",
    ]
    around = table(html, "Calls around the P95", head=False)[1]
    assert around[0][0] == "38\u202fµsas its server saw it"


def test_a_method_without_times_has_no_heading_over_nothing(tmp_path: Path) -> None:
    with serving(tmp_path, [call_of("web", "Get") | {"total_ns": None}]) as running:
        html = ask(running, "/method?service=web&method=Get")[1]
    assert "The slowest calls" not in html and "as its server saw it" not in html
    assert "its tax is not known, which takes the records of both sides" in html


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
        ("/service?name=" + "x" * 1025, 400),
        ("/service?name=%27%20OR%201%3D1%20--", 404),
        ("/trace?trace=zz&span=1", 400),
        ("/trace?trace=" + "0" * 32 + "&span=1", 404),
        ("/trace?trace=" + "0" * 32 + "&span=" + "9" * 19, 400),
        ("/?a;b", 400),
        ("/?sort=p99%3BDROP", 400),
        ("/?sort=", 400),
        ("/?sort=p99&sort=p50", 400),
        ("/?sort=p99&order=down", 400),
        ("/?page=0", 400),
        ("/?page=-1", 400),
        ("/?page=1%20OFFSET%200", 400),
        ("/?page=9999999", 400),
        ("/?page=2", 404),
        ("/service?name=bigtable&page=2", 404),
        ("/method?service=a&method=b&sort=service", 400),
        ("/method?service=a&method=b&page=99", 404),
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


@contextmanager
def limited(folder: Path, limits: Limits) -> Iterator[tuple[ThreadingHTTPServer, Pages]]:
    """A server of an empty store with few of all, which runs, and its pages."""
    write_manifest(folder, Manifest())
    pages = Pages(Queries(Store.open(folder)))
    running = serve_latest(lambda: pages, (HOST, 0), limits)
    thread = threading.Thread(target=running.serve_forever, args=[0.01])
    thread.start()
    try:
        yield running, pages
    finally:
        running.shutdown()
        thread.join()
        running.server_close()


def said_to(server: ThreadingHTTPServer, said: bytes) -> bytes:
    """The whole answer to it, which ends the connection."""
    with create_connection((HOST, server.server_port), timeout=30) as connection:
        connection.sendall(said)
        with connection.makefile("rb") as answer:
            return answer.read()


def test_more_readers_than_threads_are_told_to_come_again(tmp_path: Path) -> None:
    with limited(tmp_path, Limits(connections=1)) as (running, _):
        with create_connection((HOST, running.server_port)) as holds:
            holds.sendall(b"GET / HT")
            answer = said_to(running, b"")
            assert answer.startswith(b"HTTP/1.1 503") and b"Retry-After: 1\r\n" in answer
        while ask(running, "/")[0] == 503:
            pass


def test_a_reader_who_drips_gives_his_thread_back(tmp_path: Path) -> None:
    """Each byte comes in time, and all of them never do."""
    with (
        limited(tmp_path, Limits(head_s=0.01)) as (running, _),
        create_connection((HOST, running.server_port)) as connection,
        pytest.raises(ConnectionError),
    ):
        for _ in range(60_000):
            connection.sendall(b"x")


def test_a_reader_s_head_is_bounded(server: ThreadingHTTPServer) -> None:
    long = b"A: " + b"b" * 60_000 + b"\r\n"
    assert b" 431 " in said_to(server, b"GET / HTTP/1.1\r\n" + 20 * long + b"\r\n").partition(b"\r\n")[0]
    assert ask(server, "/")[0] == 200


def test_pages_are_made_a_few_at_a_time(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def slow(_: str) -> str:
        begun.set()
        assert goes_on.wait(30)
        return "made"

    with limited(tmp_path, Limits(made_at_once=1, turn_s=0)) as (running, pages):
        pages.by_path["/"] = slow
        first: list[tuple[int, str]] = []
        asking = threading.Thread(target=lambda: first.append(ask(running, "/")))
        asking.start()
        assert begun.wait(30)
        try:
            answer = said_to(running, f"GET / HTTP/1.1\r\nHost: {HOST}:{running.server_port}\r\n\r\n".encode())
        finally:
            goes_on.set()
            asking.join()
        assert answer.startswith(b"HTTP/1.0 503") and b"Retry-After: 1\r\n" in answer
        assert first == [(200, "made")] and ask(running, "/") == (200, "made")


def test_the_longest_name_that_is_kept_has_a_page(tmp_path: Path) -> None:
    name = "ü" * NAME_CHARACTERS_MAX
    with serving(tmp_path, [call_of(name, name)]) as running:
        _, fleet = ask(running, "/")
        status, service = ask(running, links(fleet, "/service")[0])
        assert status == 200
        assert ask(running, links(service, "/method")[0])[0] == 200


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


def table(html: str, title: str, *, head: bool = True) -> tuple[list[str], list[list[str]]]:
    """The heads, if it has any, and the rows of a table, as text."""
    part = html[html.index(f'aria-label="{title}"') :]
    part = part[: part.index("</table>")]

    def cells(row: str) -> list[str]:
        found = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        return [unescape(re.sub(r"<[^>]*>", "", cell)) for cell in found]

    rows = [cells(row) for row in re.findall(r"<tr>(.*?)</tr>", part, re.DOTALL)]
    return (rows[0], rows[1:]) if head else ([], rows)


def shop() -> list[dict[str, object]]:
    """Web calls cart, from two services, and cart calls a store twice a call; a method has one name and number."""
    rows = []
    for at in range(40):
        client, slow = ("web", 1_000) if at % 4 else ("batch", 9_000)
        call = call_of("cart", "Get", at) | {"span_id": 3 * at - 60, "method_id": 1, "client_service": client}
        app = slow + at
        rows.append(call | {"total_ns": app + slow, "server_app_ns": app, "status": "OK" if at else "ABORTED"})
        for below in (1, 2):
            store = call | {
                "span_id": 3 * at - 60 + below,
                "parent_id": 3 * at - 60,
                "service": "store",
                "method_id": 2,
            }
            rows.append(store | {"method": "Read", "client_service": "cart", "total_ns": 300 * below})
    return rows


def test_a_method_has_its_clients_and_what_it_calls(tmp_path: Path) -> None:
    with serving(tmp_path, shop()) as running:
        html = ask(running, "/method?service=cart&method=Get")[1]
        leaf = ask(running, "/method?service=store&method=Read")[1]
    heads, clients = table(html, "Its clients")
    names = ["Name", "Calls \u2193", "Errors", "P50", "P95", "P99", "P50 outside the handler", "Tax of the time"]
    assert heads == names
    assert clients == [
        ["web", "30", "0\u202f%", "2.02\u202fµs", "2.04\u202fµs", "2.04\u202fµs", "1\u202fµs", "49.5\u202f%"],
        ["batch", "10", "10\u202f%", "18\u202fµs", "18\u202fµs", "18\u202fµs", "9\u202fµs", "49.9\u202f%"],
    ]
    # Who calls is itself called by nobody here; whoever is called has a page.
    assert "/service?name=web" not in html
    _, callees = table(html, "What it calls")
    assert callees == [
        ["Readstore", "80", "0\u202f%", "300\u202fns", "600\u202fns", "600\u202fns", "\u2013", "\u2013"]
    ]
    assert "/method?service=store&amp;method=Read" in html
    assert "/service?name=cart" in leaf and 'aria-label="What it calls"' not in leaf


def test_a_method_s_page_has_its_critical_path(tmp_path: Path) -> None:
    with serving(tmp_path, shop()) as running:
        html = ask(running, "/method?service=cart&method=Get")[1]
    heads, rows = table(html, "The critical path of cart: Get")
    assert heads == [
        "On the path",
        "P502.03\u202fµs · 3 calls",
        "P9518\u202fµs · 4 calls",
        "P9918\u202fµs · 2 calls",
    ]
    assert [row[0] for row in rows] == ["Getcart", "Readstore"]
    # Of 2.03 µs the second call to the store takes 600 ns, the first one beside it nothing.
    assert rows[1][1].startswith("29.6\u202f%600\u202fns")


@pytest.mark.parametrize("sort", ["name", "calls", "errors", "p50", "p95", "p99", "outside", "tax"])
def test_tables_are_sorted_by_each_of_their_columns(tmp_path: Path, sort: str) -> None:
    with serving(tmp_path, shop()) as running:
        found = {
            order: table(
                ask(running, f"/method?service=cart&method=Get&sort={sort}&order={order}")[1], "Its clients"
            )
            for order in ("asc", "desc")
        }
    first = {"asc": "web", "desc": "batch"} if sort != "calls" else {"asc": "batch", "desc": "web"}
    if sort == "name":
        first = {"asc": "batch", "desc": "web"}
    assert {order: rows[0][0] for order, (_, rows) in found.items()} == first
    marked = [head for head in found["desc"][0] if head.endswith("\u2193")]
    assert len(marked) == 1


def test_a_head_s_link_turns_the_order_and_keeps_the_page_s_own(server: ThreadingHTTPServer) -> None:
    _, fleet = ask(server, "/?sort=p99")
    assert (
        '<th scope="col" class="number" aria-sort="descending"><a href="/?sort=p99&amp;order=asc">P99</a>' in fleet
    )
    assert '<a href="/?sort=name&amp;order=asc">Name</a>' in fleet
    _, rows = table(fleet, "All services")
    _, turned = table(ask(server, "/?sort=p99&order=asc")[1], "All services")
    assert [row[0] for row in turned] == [row[0] for row in reversed(rows)]
    _, service = ask(server, links(fleet, "/service")[0] + "&sort=tax&order=asc")
    own = links(service, "/service")
    assert own and all(link.startswith(links(fleet, "/service")[0] + "&sort=") for link in own)
    assert all(ask(server, link)[0] == 200 for link in own)


def test_what_is_not_known_comes_last_in_both_orders(tmp_path: Path) -> None:
    rows = [call_of("a", "A", 1), call_of("b", "B", 2) | {"total_ns": None}, call_of("c", "C", 3)]
    with serving(tmp_path, rows) as running:
        for order in ("asc", "desc"):
            _, found = table(ask(running, f"/?sort=p99&order={order}")[1], "All services")
            assert found[-1][0] == "b", order


def test_long_lists_are_turned_over(tmp_path: Path) -> None:
    count = 2 * ROWS_MAX + 5
    with serving(tmp_path, [call_of(f"s{at:03}", "m", at) for at in range(count)]) as running:
        seen, path = [], "/?sort=name"
        while path:
            status, html = ask(running, path)
            assert status == 200
            seen += [row[0] for row in table(html, "All services")[1]]
            path = next((unescape(link) for link in re.findall(r'href="([^"]*)" rel="next"', html)), "")
        assert seen == [f"s{at:03}" for at in range(count)]
        assert 'href="/?sort=name&amp;order=asc&amp;page=2" rel="prev"' in html


def test_ids_have_no_sign_and_are_in_hexadecimal_digits(tmp_path: Path) -> None:
    with serving(tmp_path, shop()) as running:
        pages = [
            ask(running, path)[1]
            for path in ("/method?service=cart&method=Get", "/method?service=store&method=Read", "/trace?trace=0")
        ]
        assert f"<code>{bytes([0, 39] + [0] * 14).hex()}</code>" in pages[0]
        for html in pages:
            ids = [link.partition("span=")[2] for link in links(html, "/trace?")]
            assert ids and all(re.fullmatch(r"[0-9a-f]{16}", each) for each in ids)
            shown = unescape(re.sub(r"<[^>]*>", " ", html[html.index("<main") :]))
            assert not re.search(r"[ (]-\d", shown)
