"""The page's server: what it answers, what it refuses, and that it ends when told to."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from language_server import MODEL, WORDS, Asked, LanguageServer, chunk, language_server
from served_page import serving, started

from bench.words import Words
from scotfree.loopback import ASKED_MAX, BODY_BYTES_MAX, HOST, Server
from scotfree.rag import Document, Endpoint, Index, cli
from scotfree.rag.commands import opening

DOCUMENTS = [
    Document("violin", "a violin has four strings", {"kind": "instrument", "strings": 4}),
    Document("cello", "a cello has four strings too", {"kind": "instrument", "strings": 4}),
    Document("player", "who plays with strings", {"kind": "person", "_content": "a library's own"}),
    Document('odd"', "odd", {'a"b': 1, "$": 1, "nothing": None, "kind": "person"}),
]
QUESTION = {"question": "four strings", "count": 3, "words": False, "where": {}, "model": False}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with Index.build(tmp_path_factory.mktemp("page") / "index", DOCUMENTS, Words()) as built:
        yield built


@pytest.fixture(scope="module")
def server(index: Index) -> Iterator[Server]:
    with serving(index) as running:
        yield running


def sent(
    server: Server, verb: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = HTTPConnection(HOST, server.server_port, timeout=30)
    given = {
        "Content-Type": "application/json",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    connection.request(verb, path, body or None, given)
    answer = connection.getresponse()
    found = answer.status, answer.read(), dict(answer.headers)
    connection.close()
    return found


def ask(server: Server, **changed: Any) -> list[dict[str, Any]]:
    status, body, headers = sent(server, "POST", "/ask", json.dumps(QUESTION | changed).encode())
    assert (status, headers["Content-Type"]) == (200, "application/x-ndjson"), body
    return [json.loads(line) for line in body.splitlines()]


def documents(lines: list[dict[str, Any]]) -> list[str]:
    return [hit["document"] for hit in lines[0]["found"]["hits"]]


def test_a_question_is_answered_with_its_stages(server: Server) -> None:
    found, done = ask(server)
    assert documents([found]) == ["violin", "cello", "player"]
    assert found["found"]["hits"][0]["text"] == "a violin has four strings"
    assert found["found"]["estimated"] == 4
    assert done == {"done": {"stages_ns": found["found"]["stages_ns"], "written": None}}
    assert done["done"]["stages_ns"]["embed query"] > 0
    assert "words" not in done["done"]["stages_ns"]
    assert "words" in ask(server, words=True)[-1]["done"]["stages_ns"]


def test_a_question_is_narrowed(server: Server) -> None:
    assert documents(ask(server, where={"kind": "person"}, count=1)) == ["player"]
    assert documents(ask(server, where={"strings": 4, "kind": "instrument"})) == ["violin", "cello"]
    assert documents(ask(server, where={"strings": 5})) == []


def test_the_page_knows_what_it_can_choose_from(server: Server, index: Index) -> None:
    about = json.loads(sent(server, "GET", "/about")[1])
    assert about == {
        "folder": str(index.folder),
        "documents": 4,
        "passages": 4,
        "metadata": {"kind": ["instrument", "person"], "strings": [4]},
        "model": None,
    }
    assert index.metadata(1, 1) == {"kind": ["instrument"]}


def test_what_another_process_has_changed_is_found(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", DOCUMENTS, Words()) as index, serving(index) as server:
        assert documents(ask(server, question="drums are struck", count=1)) != ["drum"]
        with Index(tmp_path / "index", Words()) as other:
            other.add([Document("drum", "drums are struck")])
            assert documents(ask(server, question="drums are struck", count=1)) == ["drum"]
            other.compact(is_forced=True)
            other.remove(["violin"])
        assert documents(ask(server)) == ["cello", "player", "drum"]


@pytest.mark.parametrize(
    "changed",
    [
        {"question": ""},
        {"question": " "},
        {"question": "x" * 2001},
        {"question": 3},
        {"question": "half a letter \ud800"},
        {"count": 0},
        {"count": 51},
        {"count": True},
        {"count": 1.5},
        {"words": 1},
        {"model": None},
        {"where": []},
        {"where": {'a"': 1}},
        {"where": {"a": [1]}},
        {"where": {"a": 2**63}},
        {"where": {"a": float("nan")}},
        {"where": dict.fromkeys("abcdefg", 1)},
        {"more": 1},
    ],
    ids=str,
)
def test_what_is_no_question_is_refused(server: Server, changed: dict[str, Any]) -> None:
    status, body, _ = sent(server, "POST", "/ask", json.dumps(QUESTION | changed).encode())
    assert status == 400 and "the question cannot be read" in json.loads(body)["error"]


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b"null", b"\xff", b"[" * 9000, json.dumps({"question": "x"}).encode()]
)
def test_what_is_no_json_of_ours_is_refused(server: Server, body: bytes) -> None:
    assert sent(server, "POST", "/ask", body)[0] == 400


def test_a_model_that_is_not_there_is_not_asked(server: Server) -> None:
    status, body, _ = sent(server, "POST", "/ask", json.dumps(QUESTION | {"model": True}).encode())
    assert status == 400 and "start with --llm or --gguf" in json.loads(body)["error"]


def test_who_may_ask(server: Server) -> None:
    body = json.dumps(QUESTION).encode()
    own = f"{HOST}:{server.server_port}"
    for status, headers in (
        (200, {}),
        (200, {"Origin": f"http://{own}"}),
        (200, {"Host": f"localhost:{server.server_port}"}),
        (421, {"Host": f"evil.example:{server.server_port}"}),
        (421, {"Host": HOST}),
        (403, {"Origin": "http://evil.example"}),
        (403, {"Origin": "null"}),
        (415, {"Content-Type": "text/plain"}),
        (413, {"Content-Length": "0"}),
        (413, {"Content-Length": "9" * 30}),
        (411, {"Content-Length": "-1"}),
        (411, {"Content-Length": "x"}),
        (411, {"Transfer-Encoding": "chunked"}),
    ):
        assert sent(server, "POST", "/ask", body, **headers)[0] == status, headers
    assert sent(server, "GET", "/about", Host="evil.example")[0] == 421
    assert sent(server, "POST", "/ask", b" " * (BODY_BYTES_MAX + 1))[0] == 413
    assert sent(server, "POST", "/other", body)[0] == 404
    for path in ("/absent", "/../page.js", "/page.js%00"):
        assert sent(server, "GET", path)[0] == 404
    assert sent(server, "GET", "/ask")[0] == sent(server, "POST", "/about", body)[0] == 405
    for verb in ("PUT", "DELETE", "OPTIONS"):
        assert sent(server, verb, "/ask")[0] == 501
    status, nothing, headers = sent(server, "HEAD", "/")
    assert (status, nothing) == (200, b"")
    assert server.server_address[0] == "127.0.0.1"


def test_nothing_comes_from_elsewhere(server: Server) -> None:
    for path, kind in (("/", "html"), ("/page.css", "css"), ("/base.css", "css"), ("/page.js", "javascript")):
        status, body, headers = sent(server, "GET", path)
        assert status == 200 and kind in headers["Content-Type"]
        assert headers["Content-Security-Policy"].startswith(
            "default-src 'none'; script-src 'self'; style-src 'self'"
        )
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert b"http:" not in body and b"https:" not in body and b"innerHTML" not in body
        assert "Python" not in headers["Server"]


def test_an_index_that_is_damaged_is_told(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", DOCUMENTS, Words()) as index, serving(index) as server:
        index._passages._changes.execute("drop table words")
        status, body, _ = sent(server, "POST", "/ask", json.dumps(QUESTION | {"words": True}).encode())
        assert status == 503 and "no such table: words" in json.loads(body)["error"]


@pytest.fixture
def language() -> Iterator[LanguageServer]:
    with language_server() as running:
        yield running


def test_a_language_model_answers_as_it_writes(index: Index, language: LanguageServer) -> None:
    with serving(index, Endpoint(language.url, MODEL, key="")) as server:
        assert json.loads(sent(server, "GET", "/about")[1])["model"] == {"name": MODEL, "place": language.url}
        found, *texts, done = ask(server, model=True)
        assert "found" in found and [line["text"] for line in texts] == WORDS
        assert done["done"]["written"]["text"] == "".join(WORDS)
        assert list(done["done"]["stages_ns"])[-2:] == ["prefill", "decode"]
        ask(server)
        assert [line for line in ask(server, model=True, where={"kind": "none"}) if "text" in line] == []
        assert len(language.bodies) == 1, "without leave, or without a passage, nothing is sent"
        language.answering = lambda asked: asked.refuse(401, "")
        lines = ask(server, model=True)
        assert documents(lines) and "it wants a key" in lines[-1]["error"]


def test_more_at_once_than_it_takes_are_told_so(index: Index, language: LanguageServer) -> None:
    has_begun, may_end = threading.Semaphore(0), threading.Event()

    def waits(asked: Asked) -> None:
        asked.begin()
        has_begun.release()
        assert may_end.wait(30)
        asked.event(chunk(content="done"))
        asked.event("[DONE]")

    language.answering = waits
    with serving(index, Endpoint(language.url, MODEL, key="")) as server:
        threads = [threading.Thread(target=ask, args=[server], kwargs={"model": True}) for _ in range(ASKED_MAX)]
        for thread in threads:
            thread.start()
            assert has_begun.acquire(timeout=30)
        status, body, _ = sent(server, "POST", "/ask", json.dumps(QUESTION).encode())
        assert status == 503 and "questions are being answered" in json.loads(body)["error"]
        assert sent(server, "GET", "/about")[0] == 200
        may_end.set()
        for thread in threads:
            thread.join()
        assert documents(ask(server))


def test_a_reader_who_leaves_ends_the_model_also_while_it_is_silent(
    index: Index, language: LanguageServer
) -> None:
    is_asked, is_ended = threading.Event(), threading.Event()

    def silent(asked: Asked) -> None:
        is_asked.set()
        assert asked.rfile.read() == b""
        is_ended.set()

    language.answering = silent
    with serving(index, Endpoint(language.url, MODEL, key="")) as server:
        connection = HTTPConnection(HOST, server.server_port, timeout=30)
        body = json.dumps(QUESTION | {"model": True}).encode()
        connection.request("POST", "/ask", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.readline().startswith(b'{"found"')
        assert is_asked.wait(30) and not is_ended.is_set()
        answer.close()
        connection.close()
        assert is_ended.wait(30)


@pytest.mark.parametrize(
    ("error", "is_ending", "is_told"),
    [(ConnectionResetError(), False, False), (ValueError(), False, True), (ValueError(), True, False)],
)
def test_who_goes_away_is_no_fault(
    index: Index, capsys: pytest.CaptureFixture[str], error: Exception, is_ending: bool, is_told: bool
) -> None:
    with serving(index) as server:
        server.is_ending = is_ending
        try:
            raise error
        except Exception:
            server.handle_error(None, (HOST, 1))
    assert bool(capsys.readouterr().err) == is_told


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_told_to_also_while_a_model_writes(
    tmp_path: Path, language: LanguageServer, number: signal.Signals
) -> None:
    def waits(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="first"))
        asked.rfile.read()

    language.answering = waits
    folder = tmp_path / "index"
    Index.build(folder, DOCUMENTS, Words()).close()
    with started(folder, "--llm", language.url, "--model", MODEL) as (running, port):
        connection = HTTPConnection(HOST, port, timeout=30)
        connection.request(
            "POST", "/ask", json.dumps(QUESTION | {"model": True}), {"Content-Type": "application/json"}
        )
        lines = connection.getresponse()
        assert b"found" in lines.readline() and lines.readline() == b'{"text": "first"}\n'
        running.send_signal(number)
        assert running.wait(60) == 0
        assert running.stderr and running.stderr.read() == ""


def test_a_port_that_is_taken_is_told(
    index: Index, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    assert cli.main(["serve", "--index", str(index.folder), "--port", str(server.server_port)]) == 2
    assert "Address already in use; name another with --port" in capsys.readouterr().err
