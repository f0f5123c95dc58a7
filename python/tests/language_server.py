"""A language model's server for tests: it streams chat completions as OpenAI's do, or is at fault as told."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ["A violin", " has four", " strings", " [1]."]
MODEL = "tiny"


def chunk(**delta: str | None) -> dict[str, Any]:
    """An event with a piece of an answer."""
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def end(reason: str = "stop") -> dict[str, Any]:
    """The event that says that the answer is whole."""
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


class Asked(BaseHTTPRequestHandler):
    """One request, with what an answer is made of."""

    body: dict[str, Any]

    def event(self, data: dict[str, Any] | str) -> None:
        """Sends one event."""
        self.wfile.write(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode())

    def begin(self, status: int = 200, kind: str = "text/event-stream") -> None:
        """Says what follows; it ends when the connection does."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()

    def refuse(self, status: int, said: Any, kind: str = "application/json") -> None:
        """Answers with an error."""
        self.begin(status, kind)
        self.wfile.write(said.encode() if isinstance(said, str) else json.dumps(said).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


class _Http(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of whoever goes before his answer."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


Answering = Callable[[Asked], None]


def answer(asked: Asked) -> None:
    """As it should be."""
    asked.begin()
    asked.event(chunk(role="assistant", content=None))
    for word in WORDS:
        asked.event(chunk(content=word))
    asked.event(end())
    asked.event("[DONE]")


class LanguageServer:
    """The server, what it was asked, and how it answers."""

    def __init__(self) -> None:
        self.answering: Answering = answer
        # What requests said, and where to.
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        own = self

        class Handler(Asked):
            def do_POST(self) -> None:
                self.body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                own.bodies.append(self.body)
                own.keys.append(self.headers["Authorization"])
                if self.path != "/v1/chat/completions":
                    self.refuse(404, "no such page", "text/plain")
                    return
                own.answering(self)

        self.http = _Http(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """What an endpoint is told."""
        return f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def language_server() -> Iterator[LanguageServer]:
    """One that runs."""
    made = LanguageServer()
    thread = threading.Thread(target=made.http.serve_forever, args=[0.01])
    thread.start()
    try:
        yield made
    finally:
        made.http.shutdown()
        thread.join()
        made.http.server_close()
