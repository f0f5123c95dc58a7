"""A server for the browser of this machine: on the loopback address, for requests that name it as their host.

That a request names this host keeps pages of other sites, whose names were pointed at this machine, from reading.
That a question is JSON keeps them from asking: a browser sends none to another site without its leave, which
nobody gives here.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, TypeVar

from scotfree.trouble import UserError, printable

HOST: Final = "127.0.0.1"
# Of a question; and of one that is too long what is still read, so that its answer arrives.
BODY_BYTES_MAX: Final = 16 << 10
_UNREAD_BYTES_MAX: Final = 1 << 20
# Questions that are answered at once.
ASKED_MAX: Final = 4
_JSON: Final = "application/json"
# Scripts and styles of our own files alone, and no other site at all.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Refused(Exception):
    """A request that is answered by an error."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Response:
    """Bytes of a kind, sent as they come."""

    kind: str
    parts: Iterable[bytes]
    status: HTTPStatus = HTTPStatus.OK
    # Called by another thread when nobody reads any more, or when all is sent.
    hang_up: Callable[[], None] | None = None


@dataclass(frozen=True)
class Site:
    """What is answered, by path: pages to those who get, questions to those who post JSON."""

    pages: Mapping[str, Callable[[], Response]]
    questions: Mapping[str, Callable[[bytes], Response]]


class Server(ThreadingHTTPServer):
    """Bound (port 0: any that is free), and running when `serve` is called."""

    # Connections that wait to be taken: a browser and its tabs.
    request_queue_size = 128

    def __init__(self, site: Site, port: int) -> None:
        """A `UserError` says why it cannot listen."""
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise UserError(f"listen on {HOST}, port {port}: {error}", "name another with --port") from None
        self.site = site
        self.hosts = [f"{name}:{self.server_port}" for name in (HOST, "localhost")]
        self.origins = [f"http://{host}" for host in self.hosts]
        self.slots = threading.BoundedSemaphore(ASKED_MAX)
        self.is_ending = False

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"{self.origins[0]}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away before his answer is no fault, and whoever is left at the end is none."""
        if not self.is_ending and not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def serve_until_interrupted(self) -> None:
        """Says where it is, and answers until SIGINT or SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            print(f"{self.url} (end with Ctrl-C)", file=sys.stderr, flush=True)
            self.serve_forever()
        self.is_ending = True
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "scotfree"
    sys_version = ""
    # Whoever does not finish a request, or does not read its answer, gives his thread back.
    timeout = 10

    def do_GET(self) -> None:
        self._answer(self._page)

    def do_HEAD(self) -> None:
        self._answer(self._page)

    def do_POST(self) -> None:
        body = self._body()
        if not self.server.slots.acquire(blocking=False):
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{ASKED_MAX} questions are being answered")
        try:
            self._answer(lambda: self._question(body))
        finally:
            self.server.slots.release()

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: what is asked is the user's own."""

    def _answer(self, find: Callable[[], Response]) -> None:
        try:
            self._check_host()
            response = find()
        except Refused as refused:
            return self._refuse(refused.status, str(refused))
        except UserError as error:
            return self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        self._send(response)

    def _check_host(self) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server is known by its loopback address only")

    def _page(self) -> Response:
        return _of(self.server.site.pages, self.path)()

    def _question(self, body: bytes | None) -> Response:
        answer = _of(self.server.site.questions, self.path)
        if self.headers.get_content_type() != _JSON:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a question is {_JSON}")
        if self.headers.get("Origin", self.server.origins[0]) not in self.server.origins:
            raise Refused(HTTPStatus.FORBIDDEN, "another site's page does not ask here")
        if body is None:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has 1 to {BODY_BYTES_MAX} bytes")
        return answer(body)

    def _body(self) -> bytes | None:
        """What was posted; nothing, if it is no question's length."""
        said = self.headers.get("Content-Length", "")
        length = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
        data = self.rfile.read(min(length, _UNREAD_BYTES_MAX))
        return data if 0 < length <= BODY_BYTES_MAX and len(data) == length else None

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(Response(_JSON, [json.dumps({"error": printable(why)}).encode()], status))

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with self._watched(response.hang_up):
            for part in response.parts:
                self.wfile.write(part)

    @contextmanager
    def _watched(self, hang_up: Callable[[], None] | None) -> Iterator[None]:
        """Finds out that a browser has gone while there is nothing to send to it."""
        if hang_up is None:
            yield
            return
        watcher = threading.Thread(target=self._watch, args=[hang_up])
        watcher.start()
        try:
            yield
        finally:
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_RD)
            watcher.join()

    def _watch(self, hang_up: Callable[[], None]) -> None:
        """Waits for the end of what the browser says, which has asked and says nothing more."""
        with suppress(OSError):
            while True:
                with suppress(TimeoutError):
                    self.connection.recv(1, socket.MSG_PEEK)
                    break
        hang_up()


Found = TypeVar("Found")


def _of(by_path: Mapping[str, Found], path: str) -> Found:
    try:
        return by_path[path]
    except KeyError:
        raise Refused(HTTPStatus.NOT_FOUND, "no such page") from None
