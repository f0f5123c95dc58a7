"""A language model answers from what was found: streamed, within its budgets, with its time told apart.

The endpoint is a real server on the loopback address; whatever it does wrong is told, and the key never is.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from language_server import MODEL, WORDS, Answering, Asked, LanguageServer, answer, chunk, end, language_server

from scotfree.rag import Answer, Endpoint, Hit, RagError, write_answer
from scotfree.rag.generate.endpoint import KEY, Limits
from scotfree.rag.generate.model import HangUp, Piece
from scotfree.rag.generate.prompt import prompt

SECRET = "sk-a-secret-of-the-user"
# Short where nothing is to be waited for; a fault is found, not awaited.
LIMITS = Limits(connect_s=10, read_s=10)


def hits(*texts: str) -> list[Hit]:
    return [Hit(place, text, f"/srv/notes/{place}.txt", 0, 0.5, {}) for place, text in enumerate(texts)]


@pytest.fixture
def server() -> Iterator[LanguageServer]:
    with language_server() as running:
        yield running


def endpoint(server: LanguageServer, **how: Any) -> Endpoint:
    return Endpoint(server.url, MODEL, **{"key": SECRET, "limits": LIMITS, **how})


def texts(model: Endpoint) -> list[str]:
    return [piece.text for piece in model.stream("a prompt", 50) if piece.text]


def test_the_question_and_its_passages_are_sent_and_the_answer_comes_back(server: LanguageServer) -> None:
    found = Answer({"embed query": 3, "score": 4}, hits("A violin has four strings.", "Drums are struck."))
    assert list(write_answer(endpoint(server), "How many strings?", found, tokens_max=50)) == WORDS
    (body,) = server.bodies
    assert (body["model"], body["stream"], body["max_tokens"]) == (MODEL, True, 50)
    (message,) = body["messages"]
    assert "[1]\nA violin has four strings.\n\n[2]\nDrums are struck." in message["content"]
    assert "Question: How many strings?" in message["content"]
    assert "/srv/notes" not in str(body), "a path is nobody's business"
    assert server.keys == [f"Bearer {SECRET}"]
    assert found.written is not None
    assert (found.written.text, found.written.ended, found.written.shown) == ("".join(WORDS), "stop", 2)
    assert found.written.retrieval_ns == 7 and found.written.prefill_ns == found.stages_ns["prefill"] > 0
    assert list(found.stages_ns) == ["embed query", "score", "prefill", "decode"]


def test_an_answer_is_read_while_it_is_written(server: LanguageServer) -> None:
    is_read = threading.Event()

    def after_the_first(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="first"))
        # The server goes on only when somebody has read what it wrote.
        assert is_read.wait(30)
        asked.event(chunk(content="second"))
        asked.event(end("length"))

    server.answering = after_the_first
    found = Answer({}, hits("text"))
    pieces = write_answer(endpoint(server), "?", found)
    assert next(pieces) == "first"
    is_read.set()
    assert list(pieces) == ["second"]
    assert found.written and found.written.ended == "length"


def test_whoever_stops_reading_leaves(server: LanguageServer) -> None:
    is_left = threading.Event()

    def until_left(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="first"))
        assert asked.rfile.read() == b""
        is_left.set()

    server.answering = until_left
    pieces = write_answer(endpoint(server), "?", Answer({}, hits("text")))
    next(pieces)
    pieces.close()
    assert is_left.wait(30)


def test_another_thread_ends_a_model_that_has_not_begun(server: LanguageServer) -> None:
    hang_up, is_left = HangUp(), threading.Event()

    def until_left(asked: Asked) -> None:
        # The request is here, and its sender waits: now he is called away.
        hang_up()
        assert asked.rfile.read() == b""
        is_left.set()

    server.answering = until_left
    for _ in range(2):
        with pytest.raises(RagError, match="the connection failed"):
            list(endpoint(server).stream("?", 9, hang_up))
    assert is_left.wait(30) and len(server.bodies) == 1, "what is over does not begin"


class Told:
    """A model whose time is what a test says."""

    name = place = "told"

    def __init__(self, clock: list[int], count: int = 3) -> None:
        self.clock, self.count, self.is_closed = clock, count, False

    def stream(self, prompt: str, tokens_max: int, hang_up: HangUp | None = None) -> Generator[Piece, None, None]:
        try:
            self.clock[0] += 60
            for _ in range(self.count):
                self.clock[0] += 7
                yield Piece("word ")
            yield Piece("", "stop")
        finally:
            self.is_closed = True

    def close(self) -> None:
        pass


def test_prefill_ends_at_the_first_token_and_reading_is_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0]
    monkeypatch.setattr("time.perf_counter_ns", lambda: clock[0])
    found = Answer({"score": 5}, hits("text"))
    for _ in range(2):
        for _ in write_answer(Told(clock), "?", found):
            clock[0] += 1000
        assert found.stages_ns == {"score": 5, "prefill": 67, "decode": 14}, "asked again it is measured again"
        assert found.written and (found.written.retrieval_ns, found.written.prefill_ns) == (5, 67)


def test_a_model_that_does_not_end_is_ended() -> None:
    model = Told([0], 10_000)
    found = Answer({}, hits("text"))
    assert len(list(write_answer(model, "?", found, tokens_max=20))) == 21
    assert found.written and found.written.ended == "length" and model.is_closed
    model = Told([0], 10_000)
    pieces = write_answer(model, "?", found)
    next(pieces)
    pieces.close()
    assert model.is_closed, "whoever stops reading stops the model"


def test_the_prompt_keeps_to_its_budget() -> None:
    many = hits(*(str(place) * 100 for place in range(9)))
    text, shown = prompt("what?", (hit.text for hit in many), 350)
    assert shown == 3 and "2" * 100 in text and "3" * 100 not in text
    text, shown = prompt("what?", ["x" * 1000, "y"], 350)
    assert shown == 1 and "x" * 350 in text and "x" * 351 not in text


def test_what_a_server_does_not_know_is_asked_in_its_words(server: LanguageServer) -> None:
    """As newer models of OpenAI's do."""

    def newer(asked: Asked) -> None:
        for setting in ("max_tokens", "temperature"):
            if setting in asked.body:
                asked.refuse(400, {"error": {"message": f"Unsupported: {setting}", "param": setting}})
                return
        answer(asked)

    server.answering = newer
    assert texts(endpoint(server)) == WORDS
    assert server.bodies[-1]["max_completion_tokens"] == 50 and len(server.bodies) == 3
    server.answering = lambda asked: asked.refuse(400, {"error": {"message": "never", "param": "max_tokens"}})
    with pytest.raises(RagError, match="HTTP 400: never"):
        texts(endpoint(server))


def test_thoughts_are_no_answer_but_end_prefill(server: LanguageServer) -> None:
    def thinks(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(role="assistant", content=""))
        asked.event(chunk(reasoning_content="hm"))
        asked.event(chunk(content="yes"))
        # Some say nothing behind the last word, and go.
        asked.event(end())

    server.answering = thinks
    assert list(endpoint(server).stream("?", 9)) == [Piece(""), Piece("yes"), Piece("", "stop")]


def cut(asked: Asked) -> None:
    asked.begin()
    for word in WORDS[:2]:
        asked.event(chunk(content=word))


def hang(asked: Asked) -> None:
    """Says nothing until whoever asked has gone."""
    asked.rfile.read()


def refusing(status: int, said: Any, kind: str = "application/json") -> Answering:
    return lambda asked: asked.refuse(status, said, kind)


def streaming(*events: Any) -> Answering:
    def stream(asked: Asked) -> None:
        asked.begin()
        for event in events:
            asked.event(event)

    return stream


FAULTS: dict[str, tuple[Answering, str]] = {
    "cut": (cut, "broke off after 17 letters; ask again"),
    "cut at once": (streaming(), "broke off after 0 letters"),
    "closes": (lambda asked: asked.connection.shutdown(socket.SHUT_RDWR), "the connection failed"),
    "key": (
        refusing(401, {"error": {"message": f"Incorrect: {SECRET}"}}),
        f"refuses the key; put its key into {KEY}",
    ),
    "forbidden": (refusing(403, "go"), "refuses the key"),
    "model": (
        refusing(404, {"error": {"message": f'model "{MODEL}" not found, try pulling it first'}}),
        "has no model tiny: .*; name one that it has",
    ),
    "model as another says it": (
        refusing(404, {"object": "error", "message": "The model `tiny` does not exist."}),
        "has no model tiny",
    ),
    "no chat": (refusing(404, {"detail": "Not Found"}), "no chat completions there .HTTP 404.; name the address"),
    "page": (refusing(200, "<html>", "text/html"), "does not stream chat completions.*; name the address"),
    "whole": (refusing(200, {"choices": []}), "does not stream"),
    "other events": (streaming({"type": "ping"}), "what it streams is no chat completion"),
    "no JSON": (streaming("{"), "what it streams is no chat completion"),
    "a list": (streaming("[1]"), "what it streams is no chat completion"),
    "endless event": (streaming("x" * 2_000_000), "does not stream chat completions"),
    "breaks": (streaming({"error": {"message": f"out of memory {SECRET}"}}), "broke off: out of memory .the key."),
    "context": (
        refusing(400, {"error": {"message": "request (900 tokens) exceeds the available context size"}}),
        "show it less: --letters",
    ),
    "quota": (refusing(429, {"error": "slow down"}), "HTTP 429: slow down; ask again later"),
    "internal": (refusing(500, f"x{SECRET}" * 50_000, "text/plain"), "HTTP 500: no reason"),
    "repeats the key": (refusing(503, {"detail": f"overloaded, {SECRET}"}), "HTTP 503: overloaded, .the key."),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_server_is_told_with_a_next_step_and_without_the_key(
    server: LanguageServer, fault: str
) -> None:
    server.answering, said = FAULTS[fault]
    with pytest.raises(RagError, match=said) as raised:
        texts(endpoint(server))
    assert SECRET not in str(raised.value) and raised.value.advice
    assert raised.value.problem.startswith(f"ask the language model at {server.url}: ")


def test_a_key_is_not_carried_elsewhere(server: LanguageServer) -> None:
    def elsewhere(asked: Asked) -> None:
        asked.send_response(307)
        asked.send_header("Location", f"{server.url}/chat/completions")
        asked.end_headers()

    server.answering = elsewhere
    with pytest.raises(RagError, match=r"no chat completions there .HTTP 307."):
        texts(endpoint(server))
    assert len(server.bodies) == 1


def test_a_server_that_only_says_that_it_is_there_is_left(server: LanguageServer) -> None:
    is_left = threading.Event()

    def there(asked: Asked) -> None:
        asked.begin()
        try:
            while True:
                asked.wfile.write(b": ping\n\n")
        except OSError:
            is_left.set()

    server.answering = there
    with pytest.raises(RagError, match=r"it was not done after 0\.1 s; ask for less"):
        texts(endpoint(server, limits=Limits(answer_s=0.1)))
    assert is_left.wait(30)


def test_nobody_waits_for_ever(server: LanguageServer) -> None:
    server.answering = hang
    with pytest.raises(RagError, match=r"it said nothing for 0\.1 s; wait longer with --patience"):
        texts(endpoint(server, limits=Limits(read_s=0.1)))
    server.answering = answer
    with pytest.raises(RagError, match="it was not done after 0 s"):
        texts(endpoint(server, limits=Limits(answer_s=0)))


def test_a_server_that_is_not_there_is_told() -> None:
    with socket.socket() as taken:
        # Bound, and not listening: nobody else gets the port meanwhile.
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(RagError, match=r"nothing answers there: .*; start it, or name another"):
            texts(Endpoint(url, MODEL, limits=LIMITS))


def test_the_key_comes_from_the_environment(server: LanguageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    assert texts(endpoint(server, key=None)) == WORDS
    monkeypatch.delenv(KEY)
    assert texts(endpoint(server, key=None)) == WORDS
    assert server.keys == [f"Bearer {SECRET}", None]
    server.answering = refusing(401, "")
    with pytest.raises(RagError, match="it wants a key"):
        texts(endpoint(server, key=None))
    monkeypatch.setenv(KEY, f"{SECRET}\n")
    with pytest.raises(RagError, match="letters that no key has") as raised:
        endpoint(server, key=None)
    assert SECRET not in str(raised.value)


def test_what_stays_here_goes_through_no_proxy(server: LanguageServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert texts(endpoint(server)) == WORDS


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:80", "ftp://here/v1", "http://", "http://x:y/v1", "http://x/v1?key=1", "http://[x/v1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RagError, match="it is none; name the address of an OpenAI-compatible endpoint"):
        Endpoint(url, MODEL)


def test_a_password_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(RagError, match=f"put a key into {KEY}") as raised:
        Endpoint(f"http://me:{SECRET}@here/v1", MODEL)
    assert SECRET not in str(raised.value)
