"""Embeddings of a server, over real connections to this machine: what is sent, what is believed, what is told."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.words import DIMENSIONS, Words
from scotfree.rag import Document, Index, RagError, cli
from scotfree.rag.embed import asking, by_name
from scotfree.rag.embed.asking import KEY, TRIES_MAX
from scotfree.rag.embed.endpoint_embedder import EndpointEmbedder

SECRET = "sk-nobody-shall-read-this"
# Status, headers, body; or nothing at all.
Reply = tuple[int, dict[str, str], bytes] | None


class Server(ThreadingHTTPServer):
    """Embeds as `Words` does, three times as long and in another order, unless other replies were put before."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: list[Reply] = []
        self.asked: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, dict(self.headers), body))
        reply = self.server.replies.pop(0) if self.server.replies else embedded(body["input"])
        if reply is None:
            return
        status, headers, data = reply
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """To nobody."""


def embedded(texts: list[str]) -> Reply:
    rows = [{"index": place, "embedding": (3 * row).tolist()} for place, row in enumerate(Words().embed(texts))]
    return 200, {}, json.dumps({"data": rows[::-1]}).encode()


def data(*rows: list[float]) -> Reply:
    said = {"data": [{"index": place, "embedding": row} for place, row in enumerate(rows)]}
    return 200, {}, json.dumps(said).encode()


def refusal(status: int, message: str = "because", **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, named, json.dumps({"error": {"message": message}}).encode()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv(KEY, raising=False)
    # Whoever has a proxy asks this machine without it.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with Server() as started:
        thread = threading.Thread(target=started.serve_forever, args=[0.01])
        thread.start()
        yield started
        started.shutdown()
        thread.join()


@pytest.fixture
def waits() -> list[float]:
    """Seconds that it would have waited."""
    return []


@pytest.fixture
def embedder(server: Server, waits: list[float]) -> EndpointEmbedder:
    made = EndpointEmbedder(server.url, "some/model", wait=waits.append)
    server.asked.clear()
    return made


def test_texts_get_their_vectors_in_few_questions(server: Server, embedder: EndpointEmbedder) -> None:
    texts = [f"word{place} and more" for place in range(70)]
    assert np.abs(embedder.embed(texts) - Words().embed(texts)).max() < 1e-6
    assert [len(body["input"]) for _, _, body in server.asked] == [32, 32, 6]
    path, headers, body = server.asked[0]
    assert path == "/v1/embeddings" and body["model"] == "some/model" and "Authorization" not in headers
    assert embedder.dimensions == DIMENSIONS and embedder.embed([]).shape == (0, DIMENSIONS)
    assert embedder.count_tokens("rotating logs") == 2


def test_its_prompts_are_sent_before_texts(server: Server) -> None:
    name = f"endpoint:{server.url}#some"
    embedder = by_name(name, query_prompt="ask ", passage_prompt="read ")
    server.asked.clear()
    assert isinstance(embedder, EndpointEmbedder)
    embedder.embed_questions(["one"])
    embedder.embed(["two", "three"])
    assert [body["input"] for _, _, body in server.asked] == [["ask one"], ["read two", "read three"]]
    assert embedder.digest != by_name(name).digest and embedder.tokens_max == 255


def test_another_model_behind_the_name_shows_by_its_dimensions(server: Server, tmp_path: Path) -> None:
    name = f"endpoint:{server.url}#some"
    Index.build(tmp_path / "index", [Document("cats", "cats purr")], by_name(name)).close()
    server.replies.append(data([3.0, 4.0]))
    with pytest.raises(RagError, match=rf"have {DIMENSIONS} dimensions, and those of .* now have 2"):
        Index(tmp_path / "index", by_name(name))


def test_its_digest_is_of_all_that_is_known(server: Server, embedder: EndpointEmbedder) -> None:
    assert embedder.name == f"endpoint:{server.url}#some/model"
    assert by_name(embedder.name).digest == by_name(f"endpoint:{server.url}/#some/model").digest == embedder.digest
    other = by_name(f"endpoint:{server.url}#other")
    server.replies.append(data([3.0, 4.0]))
    fewer = by_name(embedder.name)
    assert len({embedder.digest, other.digest, fewer.digest}) == 3 and fewer.dimensions == 2


def test_the_key_is_sent_and_never_told(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    EndpointEmbedder(server.url, "some")
    assert server.asked[0][1]["Authorization"] == f"Bearer {SECRET}"
    server.replies.append(refusal(401, f"no such key: {SECRET}"))
    with pytest.raises(RagError, match=r"it refuses the key; put its key into SCOTFREE_EMBED_KEY"):
        EndpointEmbedder(server.url, "some")
    server.replies += [refusal(503, f"busy, {SECRET}")] * TRIES_MAX
    with pytest.raises(RagError, match=r"busy, \(the key\) "):
        EndpointEmbedder(server.url, "some", wait=lambda _: None)
    monkeypatch.setenv(KEY, f"{SECRET}\r\nand: more")
    with pytest.raises(RagError, match="letters that no key has") as refused:
        EndpointEmbedder(server.url, "some")
    assert SECRET not in str(refused.value)


def test_whoever_is_busy_is_asked_again(server: Server, embedder: EndpointEmbedder, waits: list[float]) -> None:
    server.replies += [refusal(429, Retry_After="7"), refusal(503), None, refusal(500)]
    assert embedder.embed(["a text"]).shape == (1, DIMENSIONS)
    assert waits == [7.0, 1.0, 2.0, 4.0] and len(server.asked) == 5


def test_whoever_stays_busy_is_given_up(server: Server, embedder: EndpointEmbedder, waits: list[float]) -> None:
    server.replies += [refusal(502, "gateway")] * 9
    with pytest.raises(RagError, match=r"it answers HTTP 502: gateway \(asked 5 times\); try again later"):
        embedder.embed(["a text"])
    assert waits == [0.5, 1.0, 2.0, 4.0] and len(server.asked) == TRIES_MAX


def test_a_pause_that_is_asked_for_is_made_if_it_is_short(
    server: Server, embedder: EndpointEmbedder, waits: list[float]
) -> None:
    server.replies.append(refusal(429, Retry_After=formatdate(time.time() + 40, usegmt=True)))
    embedder.embed(["a text"])
    assert 30 < waits.pop() <= 40
    server.replies.append(refusal(429, Retry_After="soon"))
    embedder.embed(["a text"])
    assert waits.pop() == 0.5
    server.replies.append(refusal(429, "slow down", Retry_After="3600"))
    with pytest.raises(RagError, match=r"slow down, and asks to wait 3600 s \(asked once\)"):
        embedder.embed(["a text"])
    assert not waits


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ((204, {}, b""), "it answers HTTP 204: No Content"),
        (refusal(404, "no model some"), "it answers HTTP 404: no model some; look whether address and model"),
        (refusal(400, "too\nlong"), "it answers HTTP 400: too long; look"),
        ((403, {}, b"<p>no</p>"), "it wants a key; put its key into SCOTFREE_EMBED_KEY"),
        ((418, {}, b""), "it answers HTTP 418: I'm a Teapot"),
        ((307, {"Location": "/v1/other"}, b""), "it answers HTTP 307: .*, /v1/other; name what it names"),
        ((302, {"Location": "/v1/other"}, b""), "it answers HTTP 302: .*, /v1/other; name what it names"),
        ((200, {}, b"<html>"), "is no JSON"),
        ((200, {}, b"[]"), "no embeddings of 2 texts"),
        ((200, {}, b'{"data": [{"index": 0}]}'), "no embeddings of 2 texts"),
        (data([1.0] * DIMENSIONS), "no embeddings of 2 texts"),
        (data(*[[1.0] * DIMENSIONS] * 3), "no embeddings of 2 texts"),
        (data([1.0] * DIMENSIONS, [1.0]), "no embeddings of 2 texts"),
        (data([1.0], [1.0]), "its vectors have 1 dimensions, and had 128 before"),
        (data([1.0] * DIMENSIONS, [0.0] * DIMENSIONS), "a vector has no length"),
        (data([1.0] * DIMENSIONS, [float("nan")] * DIMENSIONS), "a vector has no length"),
    ],
)
def test_what_is_no_answer_is_told_and_not_asked_for_again(
    server: Server, embedder: EndpointEmbedder, waits: list[float], reply: Reply, said: str
) -> None:
    server.replies.append(reply)
    with pytest.raises(RagError, match=said) as refused:
        embedder.embed(["one", "two"])
    assert refused.value.problem.startswith(f"ask the embedder's endpoint at {server.url}: ")
    assert not waits and len(server.asked) == 1, "nor is anybody else asked"


def test_an_answer_without_end_is_not_read_to_its_end(
    server: Server, embedder: EndpointEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_ANSWER_BYTES_MAX", 1000)
    with pytest.raises(RagError, match="it answers more than"):
        embedder.embed(["one", "two"])


def test_whoever_is_not_there_is_asked_once(waits: list[float]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{other.getsockname()[1]}/v1"
        with pytest.raises(RagError, match=r"nothing answers there: .*Connection refused; start it"):
            EndpointEmbedder(url, "some", wait=waits.append)
    assert not waits


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/v1",
        "host/v1",
        "",
        "http://",
        "https://me:secret@host/v1",
        "https://host/v1?key=secret",
        "https://host/v1\r\nHost: other",
        "https://host:port/v1",
        "https://[host/v1",
        "https://ho st/v1",
        "https://hóst/v1",
    ],
)
def test_what_is_no_address_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(RagError, match="read the address of the embedder's endpoint") as refused:
        EndpointEmbedder(url, "some")
    assert "secret" not in str(refused.value)


def test_a_key_is_not_sent_where_others_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("it looks for the host"))
    with pytest.raises(RagError, match="where others can read it; name it with https"):
        EndpointEmbedder("http://far.invalid/v1", "some")
    with pytest.raises(RagError, match="no model is named; say endpoint:URL#MODEL"):
        by_name("endpoint:https://far.invalid/v1")


def test_an_index_of_this_machines_own_server_is_opened_without_being_told(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    for text in ("cats purr", "dogs wag"):
        (tmp_path / "notes" / f"{text[:4]}.txt").write_text(text)
    where = ["--index", str(tmp_path / "index")]
    name = f"endpoint:{server.url}#some"
    assert cli.main(["index", str(tmp_path / "notes"), *where, "--embedder", name, "--quiet"]) == 0
    assert cli.main(["ask", "dogs wag", "--count", "1", *where]) == 0
    assert "dogs.txt" in capsys.readouterr().out
    server.replies += [refusal(401)]
    assert cli.main(["ask", "dogs wag", *where]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"scot rag: ask the embedder's endpoint at {server.url}: it wants a key; put its")
