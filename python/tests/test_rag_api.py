"""The interface for programs: what it answers is as it is described, and who asks too much holds nobody up."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from jsonschema import Draft202012Validator
from language_server import MODEL, WORDS, LanguageServer, language_server
from served_page import serving, started

from bench.words import Words
from scotfree import own_addresses
from scotfree.connections import HEAD_BYTES_MAX
from scotfree.loopback import BODY_BYTES_MAX, HOST, Address, Limits, Server, Site
from scotfree.rag import Document, Endpoint, Index, cli
from scotfree.rag.api import asked, openapi
from scotfree.rag.api.site import SEARCHES_MAX, WAITING_MAX
from scotfree.rag.commands import opening
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.outline import Heading, Outline
from scotfree.rag.rerank.ranked import Ranked, Reranking
from scotfree.rag.searching import Hit
from scotfree.trouble import UserError
from scotfree.turns import BusyError, Turns

DOCUMENTS = [
    Document("violin", "a violin has four strings", {"kind": "instrument", "strings": 4, "tags": ["bow", "wood"]}),
    Document("cello", "a cello has four strings too", {"kind": "instrument", "strings": 4, "year": 1560}),
    Document("player", "who plays with strings", {"kind": "person", "_content": "a library's own"}),
]
SCHEMAS = openapi.document()
TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.build(tmp_path_factory.mktemp("api") / "index", DOCUMENTS, Words()) as built:
        yield built


@pytest.fixture(scope="module")
def server(index: Index) -> Iterator[Server]:
    with serving(index) as running:
        yield running


def sent(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    """What is answered, which must be as it is described."""
    verb = "GET" if body is None else "POST"
    said = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
    given = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    with closing(HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.request(verb, path, said, given)
        answer = connection.getresponse()
        found = answer.status, answer.read(), dict(answer.headers)
    check(verb, path, found)
    return found


def check(verb: str, path: str, found: tuple[int, bytes, dict[str, str]]) -> None:
    status, body, headers = found
    operation = SCHEMAS["paths"].get(path, {}).get(verb.lower())
    if operation is None:
        assert status in (404, 405) and json.loads(body).keys() == {"error"}
        return
    said = operation["responses"][str(status)]
    if "$ref" in said:
        said = SCHEMAS["components"]["responses"][said["$ref"].split("/")[-1]]
    kind = headers["Content-Type"]
    for each in body.splitlines() if kind == "application/x-ndjson" else [body]:
        validator(said["content"][kind]["schema"]).validate(json.loads(each))


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema | {"components": SCHEMAS["components"]})


def search(port: int, **question: Any) -> dict[str, Any]:
    status, body, _ = sent(port, openapi.SEARCH, {"question": "four strings"} | question)
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def documents(found: dict[str, Any]) -> list[str]:
    return [hit["document"] for hit in found["hits"]]


def test_a_search_is_answered(server: Server) -> None:
    port = server.server_port
    found = search(port)
    assert documents(found) == ["violin", "cello", "player"] and found["estimated"] == 3
    hit = found["hits"][0]
    assert hit["text"] == "a violin has four strings" and hit["location"] == {"letter": 0}
    assert hit["metadata"] == {"kind": "instrument", "strings": 4, "tags": ["bow", "wood"]}
    assert found["question"] == "four strings" and hit["copies"] == [] and "score" not in hit
    assert 0 < hit["similarity"] <= 1 and found["stages_ns"]["embed query"] > 0
    assert found["hits"][2]["metadata"] == {"kind": "person"}
    assert documents(search(port, count=1)) == ["violin"]
    assert "words" in search(port, words=True)["stages_ns"]


class Longest:
    """Puts the longest texts first."""

    def rerank(self, question: str, hits: Sequence[Hit], count: int) -> list[Ranked]:
        order = sorted(hits, key=lambda hit: -len(hit.text))[:count]
        return [Ranked(**vars(hit) | {"score": float(len(hit.text))}) for hit in order]


def test_what_is_found_is_put_in_order_by_who_can(index: Index) -> None:
    with serving(index, ranking=Reranking(Longest(), 2)) as server:
        found = search(server.server_port, count=1)
        assert [(hit["document"], hit["score"]) for hit in found["hits"]] == [("cello", 28)], "of the two nearest"
        assert found["stages_ns"]["cross-encoder"] >= 0
        assert documents(search(server.server_port, count=3)) == ["cello", "violin", "player"]
    with serving(index) as server:
        assert "cross-encoder" not in search(server.server_port)["stages_ns"]


def test_a_text_in_several_places_is_a_hit_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Over HTTP as by the command line."""
    outline = Outline("line", title="Drums", headings=(Heading(0, 1, "Drums"),))
    same = [Document(name, "drums\n\ndrums are struck", outline=outline) for name in ("a", "b")]
    with Index.build(tmp_path / "index", [*same, *DOCUMENTS], Words()) as index, serving(index) as server:
        over_http = search(server.server_port, question="drums are struck", count=2)
    assert over_http["hits"][0]["location"] == {"letter": 0, "place": "line 1", "section": "Drums"}
    assert over_http["hits"][0]["copies"] == [{"document": "b", "location": {"letter": 0, "place": "line 1"}}]
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    words = ["ask", "drums are struck", "--json", "--count", "2", "--index", str(tmp_path / "index")]
    assert cli.main(words) == 0
    printed = json.loads(capsys.readouterr().out)
    assert validator(SCHEMAS["components"]["schemas"]["Found"]).is_valid(printed)
    assert printed.keys() == over_http.keys() and printed["hits"] == over_http["hits"]


def test_a_search_is_narrowed(server: Server) -> None:
    for where, names in (
        ({"kind": "person"}, ["player"]),
        ({"year": {"$lt": 1600}}, ["cello"]),
        ({"tags": ["bow", "reed"]}, ["violin"]),
        ({"$or": [{"kind": "person"}, {"year": {"$exists": True}}]}, ["cello", "player"]),
        ({"$not": {"strings": {"$gte": 4}}}, ["player"]),
    ):
        assert documents(search(server.server_port, where=where)) == names


NO_FILTERS: list[Any] = [
    *(None, [], "kind=person", {"k": None}, {"k": {}}, {"k": [[1]]}, {"$nor": [{"k": 1}]}, {"$or": []}),
    *({"$and": {"k": 1}}, {"$not": 1}, {"k": {"near": 1}}, {"k": {"$gt": [1]}}, {"k": {"$in": 1}}, {"$or": [1]}),
    *({"k": {"$exists": 1}}, {"k": {"$not": 1}}, {"k": {"$not": {}}}),
]
FILTERS: list[Any] = [
    *({"k": 1}, {"k": "v", "l": 2.5}, {"k": []}, {"k": [1, "v", True]}, {"": 1}, {"$and": [{}]}),
    *({"k": {"$eq": 1, "$ne": "v"}}, {"k": {"$in": []}}, {"k": {"$nin": [1]}}, {"k": {"$exists": False}}),
    *({"k": {"$not": {"$gte": 1, "$lte": 2}}}, {"k": {"$gt": 1, "$lt": "v"}}),
    {"$or": [{"k": 1}, {"$not": {"l": {"$gt": 1}}}], "m": 1},
]


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"question": "x", "more": 1},
        *({"question": wrong} for wrong in ("", " \n", "x" * (asked.QUESTION_LETTERS_MAX + 1), 3, None, ["x"])),
        *({"question": "x", "count": wrong} for wrong in (0, asked.COUNT_MAX + 1, True, 1.5, "1", None)),
        *({"question": "x", "words": wrong} for wrong in (1, None, "true")),
        *({"question": "x", "where": wrong} for wrong in NO_FILTERS),
    ],
    ids=lambda question: json.dumps(question)[:50],
)
def test_what_is_no_question_is_refused_and_described_as_none(server: Server, question: Any) -> None:
    status, body, _ = sent(server.server_port, openapi.SEARCH, question)
    assert status == 400 and "the question cannot be read: " in json.loads(body)["error"]
    assert not validator(SCHEMAS["components"]["schemas"]["Question"]).is_valid(question)


@pytest.mark.parametrize(
    "question",
    [
        {"question": "x"},
        {"question": "x" * asked.QUESTION_LETTERS_MAX, "count": asked.COUNT_MAX, "words": True, "where": {}},
        *({"question": "x", "where": where} for where in FILTERS),
    ],
    ids=lambda question: json.dumps(question)[:60],
)
def test_what_is_described_as_a_question_is_answered(server: Server, question: Any) -> None:
    validator(SCHEMAS["components"]["schemas"]["Question"]).validate(question)
    assert sent(server.server_port, openapi.SEARCH, question)[0] == 200


@pytest.mark.parametrize("body", [b"{", b"null", b"\xff", b"[" * 9000, b'{"question": "\\ud800"}', b'"x"'])
def test_what_is_no_json_of_ours_is_refused(server: Server, body: bytes) -> None:
    assert sent(server.server_port, openapi.SEARCH, body)[0] == 400


def test_the_description_is_served_and_names_what_there_is(server: Server) -> None:
    status, body, _ = sent(server.server_port, openapi.DOCUMENT)
    assert status == 200 and json.loads(body) == SCHEMAS
    named = {path for path in (*server.site.pages, *server.site.questions) if path.startswith("/api/")}
    assert SCHEMAS["paths"].keys() == named
    for schema in SCHEMAS["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    references = set(re.findall(r'"#/components/([^"]+)"', json.dumps(SCHEMAS)))
    for reference in references:
        kind, name = reference.split("/")
        assert name in SCHEMAS["components"][kind]


def test_the_state_is_told(server: Server) -> None:
    assert json.loads(sent(server.server_port, openapi.STATUS)[1]) == {
        "documents": 3,
        "passages": 3,
        "embedder": Words().name,
        "metadata": {"kind": ["instrument", "person"], "strings": [4], "year": [1560]},
        "model": None,
    }


def test_errors_are_json(server: Server) -> None:
    port, good = server.server_port, {"question": "x"}
    own = f"{HOST}:{port}"
    for status, path, body, headers in (
        (403, openapi.SEARCH, good, {"Origin": "http://evil.example"}),
        (404, "/api/v2/search", good, {}),
        (405, openapi.SEARCH, None, {}),
        (405, openapi.STATUS, good, {}),
        (411, openapi.SEARCH, good, {"Content_Length": "many"}),
        (413, openapi.SEARCH, b" " * (BODY_BYTES_MAX + 1), {}),
        (415, openapi.SEARCH, good, {"Content_Type": "text/plain"}),
        (421, openapi.SEARCH, good, {"Host": "evil.example"}),
        (421, openapi.STATUS, None, {"Host": "evil.example"}),
        (431, openapi.STATUS, None, {"X": "x" * (2 * HEAD_BYTES_MAX)}),
        (431, openapi.STATUS, None, {f"X-{place}": "x" for place in range(200)}),
        (200, openapi.SEARCH, good, {"Origin": f"http://{own}"}),
    ):
        found = sent(port, path, body, **headers)
        assert found[0] == status, (path, headers)
        assert "Access-Control-Allow-Origin" not in found[2]
        assert (found[2].get("Allow") is not None) == (status == 405)
    with closing(HTTPConnection(HOST, port, timeout=30)) as connection:
        connection.request("DELETE", openapi.SEARCH)
        answer = connection.getresponse()
        assert answer.status == 501 and "error" in json.loads(answer.read())


def test_a_fault_of_its_own_is_told(
    server: Server, index: Index, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("secret")

    with monkeypatch.context() as patched:
        patched.setattr(index, "search", fail)
        status, body, _ = sent(server.server_port, openapi.SEARCH, {"question": "x"})
    assert status == 500 and b"secret" not in body
    assert documents(search(server.server_port))
    assert "ValueError: secret" in capsys.readouterr().err


# ---- a language model


@pytest.fixture
def language() -> Iterator[LanguageServer]:
    with language_server() as running:
        yield running


def test_a_language_model_answers_as_it_writes(index: Index, language: LanguageServer) -> None:
    with serving(index, Endpoint(language.url, MODEL, key="")) as server:
        assert json.loads(sent(server.server_port, openapi.STATUS)[1])["model"] == MODEL
        status, body, headers = sent(server.server_port, openapi.ANSWER, {"question": "four strings"})
        assert (status, headers["Content-Type"]) == (200, "application/x-ndjson")
        found, *texts, done = map(json.loads, body.splitlines())
        assert documents(found["found"])[0] == "violin" and [line["text"] for line in texts] == WORDS
        assert done["done"]["written"]["text"] == "".join(WORDS)
        language.answering = lambda asked: asked.refuse(401, "")
        body = sent(server.server_port, openapi.ANSWER, {"question": "four strings"})[1]
        assert "it wants a key" in json.loads(body.splitlines()[-1])["error"]


def test_without_a_language_model_it_is_said(server: Server) -> None:
    status, body, _ = sent(server.server_port, openapi.ANSWER, {"question": "x"})
    assert status == 400 and "start with --llm or --gguf" in json.loads(body)["error"]


# ---- many who ask


def test_fifty_ask_at_once_while_another_process_changes_the_index(tmp_path: Path) -> None:
    folder, asking = tmp_path / "index", 50
    assert asking <= SEARCHES_MAX + WAITING_MAX
    Index.build(folder, DOCUMENTS, Words()).close()
    together = threading.Barrier(asking)

    def ask(place: int) -> list[dict[str, Any]]:
        together.wait(60)
        where = {"kind": ["instrument", "new"], "serial": {"$not": {"$gt": 10**6}}}
        return [search(port, count=100, where=where, words=bool(place % 2)) for _ in range(3)]

    with (
        started(folder) as (running, port),
        Index(folder, Words()) as changing,
        ThreadPoolExecutor(asking) as pool,
    ):
        asks = [pool.submit(ask, place) for place in range(asking)]
        serial = 0
        while not all(each.done() for each in asks):
            added = [Document(f"new{serial}", f"new strings {serial}", {"kind": "new", "serial": serial})]
            changing.add([*added, Document(f"other{serial}", "four strings", {"kind": "other"})])
            if serial % 3 == 0:
                changing.remove([f"new{serial - 2}", f"other{serial - 1}"])
                changing.compact(is_forced=True)
            serial += 1
        for found in (each for ask_ in asks for each in ask_.result()):
            names = documents(found)
            assert names[0] == "violin" and "cello" in names and len(names) == len(set(names))
            assert {hit["metadata"]["kind"] for hit in found["hits"]} <= {"instrument", "new"}
        last = search(port, count=100, where={"kind": "new"})
        assert set(documents(last)) == set(changing.documents({"kind": "new"})) and serial > 0
        assert running.poll() is None


class Waiting(Words):
    """Embeds a question when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun, self.may_end = threading.Semaphore(0), threading.Event()

    def embed(self, texts: Sequence[str]) -> Vectors:
        if "wait" in texts:
            self.has_begun.release()
            assert self.may_end.wait(30)
        return super().embed(texts)


class Free(threading.Semaphore):
    """Turns that say when somebody waits for one, and has a place to wait at."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.waits = threading.Semaphore(0)

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        if blocking:
            self.waits.release()
        return super().acquire(blocking, timeout)


def test_some_wait_for_their_turn_and_the_others_are_told_when_to_come_again(tmp_path: Path) -> None:
    embedder, turns = Waiting(), Turns(at_once=1, waiting_max=1, patience_s=30)
    turns._free = free = Free(1)
    with (
        Index.build(tmp_path / "index", DOCUMENTS, embedder) as index,
        serving(index, searching=turns) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        first = pool.submit(search, server.server_port, question="wait")
        assert embedder.has_begun.acquire(timeout=30)
        second = pool.submit(search, server.server_port)
        assert free.waits.acquire(timeout=30)
        for path, body in ((openapi.SEARCH, {"question": "x"}), (openapi.STATUS, None)):
            status, why, headers = sent(server.server_port, path, body)
            assert (status, headers["Retry-After"]) == (503, "1") and b"questions are being answered" in why
        # What needs no turn is answered.
        assert sent(server.server_port, openapi.DOCUMENT)[0] == 200
        embedder.may_end.set()
        assert documents(first.result()) and documents(second.result())
        assert documents(search(server.server_port))


def test_nobody_waits_for_ever() -> None:
    turns = Turns(at_once=1, waiting_max=1, patience_s=0.01)
    for _ in range(3):
        with turns.taken(), pytest.raises(BusyError, match=r"since 0\.01 s"), turns.taken():
            pass
    with turns.taken():
        pass


# ---- who asks too much


def test_a_hundred_megabytes_are_refused_unread(tmp_path: Path) -> None:
    folder, length, senders = tmp_path / "index", 100 << 20, 8
    Index.build(folder, DOCUMENTS, Words()).close()
    block = b" " * (1 << 20)

    def send(port: int) -> tuple[bytes, int]:
        with socket.create_connection((HOST, port), timeout=30) as connection:
            connection.sendall(head(port, openapi.SEARCH, length))
            count = 0
            while count < length and not select.select([connection], [], [], 0)[0]:
                connection.sendall(block)
                count += len(block)
            answer = connection.recv(1 << 16)
            # Nor does it matter that one goes on.
            with suppress(OSError):
                while count < length:
                    connection.sendall(block)
                    count += len(block)
            return answer, count

    with started(folder) as (running, port), ThreadPoolExecutor(senders) as pool:
        search(port)
        before = peak_bytes(running.pid)
        for answer, _ in pool.map(send, [port] * senders):
            assert answer.startswith(b"HTTP/1.0 413 ") and b'{"error": "a question has 1 to ' in answer
        assert peak_bytes(running.pid) - before < senders * (1 << 20)
        assert documents(search(port))[0] == "violin"


def head(port: int, path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def peak_bytes(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) << 10


@pytest.mark.parametrize(
    ("half", "answer"),
    [
        (b"", b""),
        (b"POST /api/v1/se", b""),
        (b"POST /api/v1/search HTTP/1.1\r\nHost: ", b""),
        (b"body", b"HTTP/1.0 408 "),
    ],
)
def test_who_asks_half_a_question_is_left(index: Index, half: bytes, answer: bytes) -> None:
    with serving(index, limits=Limits(connections=1, head_s=0.1, body_s=0.1)) as server:
        if half == b"body":
            half = head(server.server_port, openapi.SEARCH, 9) + b'{"q'
        with socket.create_connection((HOST, server.server_port), timeout=30) as connection:
            connection.sendall(half)
            said = b"".join(iter(lambda: connection.recv(1 << 16), b""))
            assert said.startswith(answer) and bool(said) == bool(answer)
        # The one place is free again, as soon as its thread has ended.
        while sent(server.server_port, openapi.DOCUMENT)[0] == 503:
            pass


def test_some_letters_at_a_time_are_no_way_to_stay(index: Index) -> None:
    """Each part comes in time, the whole does not; a head that is too long would be told so."""
    with (
        serving(index, limits=Limits(head_s=0.2)) as server,
        socket.create_connection((HOST, server.server_port), timeout=0.01) as connection,
        suppress(ConnectionError),
    ):
        while True:
            connection.sendall(b"x" * 500)
            with suppress(TimeoutError):
                assert connection.recv(1) == b""
                break


def test_a_flood_of_connections_is_bounded(index: Index) -> None:
    with serving(index, limits=Limits(connections=4, head_s=30)) as server:
        port = server.server_port
        held = [socket.create_connection((HOST, port), timeout=30) for _ in range(4)]
        flood = [socket.create_connection((HOST, port), timeout=30) for _ in range(100)]
        for connection in flood:
            said = b"".join(iter(lambda of=connection: of.recv(1 << 16), b""))  # type: ignore[misc]
            assert said.startswith(b"HTTP/1.1 503 ") and b"Retry-After: 1\r\n" in said
            assert json.loads(said.partition(b"\r\n\r\n")[2]) == {"error": "4 connections are open"}
            connection.close()
        for connection in held:
            connection.close()
        while sent(port, openapi.STATUS)[0] == 503:
            pass
        assert documents(search(port))


# ---- who may ask


def test_a_token_is_said_by_every_request(index: Index) -> None:
    with serving(index, token=TOKEN) as server:
        port = server.server_port
        for path, body in ((openapi.SEARCH, {"question": "x"}), (openapi.STATUS, None), (openapi.DOCUMENT, None)):
            for wrong in (None, TOKEN, f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "ÿ"):
                status, _, headers = sent(port, path, body, **({"Authorization": wrong} if wrong else {}))
                assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
            assert sent(port, path, body, Authorization=f"Bearer {TOKEN}")[0] == 200
        # The page's files are nobody's own; what it asks for is.
        for path, wanted in (
            ("/", 200),
            ("/page.js", 200),
            ("/page.css", 200),
            ("/base.css", 200),
            ("/about", 401),
        ):
            for verb in ("GET", "HEAD"):
                with closing(HTTPConnection(HOST, port, timeout=30)) as connection:
                    connection.request(verb, path)
                    assert connection.getresponse().status == wanted, (verb, path)
        for path in ("/", "/ask", "/about?token=x", f"/about?token={TOKEN}"):
            with closing(HTTPConnection(HOST, port, timeout=30)) as connection:
                connection.request("POST", path, b"{}", {"Content-Type": "application/json"})
                assert connection.getresponse().status == 401


def test_beyond_this_machine_only_with_a_token(tmp_path: Path, index: Index) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "example.com"):
        with pytest.raises(UserError, match=f"listen on {re.escape(host)} without a token"):
            Server(Site({}, {}), Address(host))
    Index.build(tmp_path / "index", DOCUMENTS, Words()).close()
    with started(tmp_path / "index", "--listen", "0.0.0.0", SCOTFREE_API_TOKEN=TOKEN) as (_, port):
        assert sent(port, openapi.SEARCH, {"question": "x"})[0] == 401
        said = {"Authorization": f"Bearer {TOKEN}", "Host": "any.example"}
        assert sent(port, openapi.SEARCH, {"question": "x"}, **said)[0] == 200
        for origin, status in (
            ("http://any.example", 200),
            ("https://any.example", 200),
            ("http://other.example", 403),
            ("http://any.example:81", 403),
            ("null", 403),
        ):
            assert sent(port, openapi.SEARCH, {"question": "x"}, **said, Origin=origin)[0] == status


@pytest.mark.parametrize(("host", "here"), [("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("", "127.0.0.1")])
def test_on_all_addresses_those_are_told_that_can_be_opened(tmp_path: Path, host: str, here: str) -> None:
    Index.build(tmp_path / "index", DOCUMENTS, Words()).close()
    with started(tmp_path / "index", "--listen", host, SCOTFREE_API_TOKEN=TOKEN) as (running, port):
        assert running.stderr
        told = last = running.stderr.readline()
        while not last.startswith("whoever asks says the token; the page asks for it\n"):
            told += (last := running.stderr.readline())
            assert last, told
    assert TOKEN not in told
    own = own_addresses.urls(host or "0.0.0.0", port, 4)
    assert own[0] == own_addresses.url(here, port)
    assert (" ".join(own[1]) in told) if own[1] else ("other machines" not in told)
    assert all(url not in told for url in (f"//{host}:", "0.0.0.0", "[::]"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_that_is_told_answers(index: Index, host: str) -> None:
    with serving(index, token=TOKEN, host=host) as server:
        urls = [server.url, *server.others]
        assert not own_addresses.is_any(urlsplit(server.url).hostname or "")
        for url in urls:
            at = urlsplit(url)
            with closing(HTTPConnection(at.hostname or "", at.port, timeout=30)) as connection:
                connection.request("GET", "/")
                assert connection.getresponse().status == 200, url
        # Of all addresses of IPv6 those of IPv4 are some, too.
        assert sent(server.server_port, openapi.STATUS, Authorization=f"Bearer {TOKEN}")[0] == 200


def test_a_token_is_in_no_log(tmp_path: Path) -> None:
    Index.build(tmp_path / "index", DOCUMENTS, Words()).close()
    with started(tmp_path / "index", SCOTFREE_API_TOKEN=TOKEN) as (running, port):
        for said in (f"Bearer {TOKEN}", f"Bearer {TOKEN}x", f"{TOKEN} \xff"):
            sent(port, openapi.STATUS, Authorization=said)
        sent(port, f"/about?token={TOKEN}", Authorization=f"Bearer {TOKEN}")
        running.terminate()
        assert running.stderr and TOKEN not in running.stderr.read()


@pytest.mark.parametrize(
    ("token", "host", "why"),
    [
        ("", "0.0.0.0", r"without a token.*set SCOTFREE_API_TOKEN, as to what `openssl rand"),
        ("short", HOST, "it has 5 letters, and could be guessed"),
        ("half a token \n with more", HOST, "letters that no key has"),
    ],
)
def test_what_is_no_token_is_refused(
    index: Index,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    token: str,
    host: str,
    why: str,
) -> None:
    monkeypatch.setenv("SCOTFREE_API_TOKEN", token)
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    assert cli.main(["serve", "--index", str(index.folder), "--port", "0", "--listen", host]) == 2
    assert re.search(why, capsys.readouterr().err)


def test_an_index_that_is_damaged_is_told(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", DOCUMENTS, Words()) as index, serving(index) as server:
        index._passages._changes.execute("drop table words")
        status, body, _ = sent(server.server_port, openapi.SEARCH, {"question": "x", "words": True})
        assert status == 503 and "no such table: words" in json.loads(body)["error"]


def test_what_the_docs_say_can_be_typed(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/rag.md").read_text()
    typed = re.findall(r"^curl .*$", page, re.MULTILINE)
    assert len(typed) == 4
    Index.build(tmp_path / "index", [Document("a.txt", "violin", {"suffix": ".txt"})], Words()).close()
    environment = os.environ | {"SCOTFREE_API_TOKEN": TOKEN}
    for has_token in (False, True):
        with started(tmp_path / "index", **({"SCOTFREE_API_TOKEN": TOKEN} if has_token else {})) as (_, port):
            for line in (line for line in typed if ("Bearer" in line) == has_token):
                here = re.sub(r"http://[^:]+:8322/", f"http://{HOST}:{port}/", line)
                ended = subprocess.run(
                    ["bash", "-c", f"{here} --silent --fail"], env=environment, capture_output=True, check=True
                )
                said = json.loads(ended.stdout)
                if "/search" in line:
                    assert documents(said) == ["a.txt"]
                else:
                    assert said["documents"] == 1
