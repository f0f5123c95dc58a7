"""A server for programs and the browser of this machine: of files, and of questions that are JSON.

On the loopback address it answers requests that name it as their host, which keeps pages of other sites, whose
names were pointed at this machine, from reading. Elsewhere it listens only with a token, which every request says
but those for files that are the same for everybody: a page asks its user for it. That a question is JSON keeps
other sites from asking: a browser sends none to another site without its leave, which nobody gives here.

Invariant: whoever asks holds bounded parts of it: connections, the bytes and the time of a request, turns.
"""

from __future__ import annotations

import hmac
import io
import json
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from typing import Any, Final, TypeVar

from scotfree import own_addresses
from scotfree.connections import RETRY_AFTER_S, BoundedServer, LongHeadError, Timed, answer
from scotfree.trouble import UserError, printable
from scotfree.turns import BusyError, Turns

HOST: Final = "127.0.0.1"
# Of a question.
BODY_BYTES_MAX: Final = 64 << 10
# Of its length, as a number.
_DIGITS_MAX: Final = 18
# Questions that a language model may answer at once.
ASKED_MAX: Final = 4
# Addresses for other machines that are told.
_OTHERS_MAX: Final = 4
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

    def __init__(self, status: HTTPStatus, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.headers = headers or {}


@dataclass(frozen=True)
class Response:
    """Bytes of a kind, sent as they come; as a list they are sent with their length."""

    kind: str
    parts: Iterable[bytes]
    status: HTTPStatus = HTTPStatus.OK
    # Called by another thread when nobody reads any more, or when all is sent.
    hang_up: Callable[[], None] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What is answered to those who post JSON, so many at once."""

    answer: Callable[[bytes], Response]
    turns: Turns


@dataclass(frozen=True)
class Site:
    """What is answered, by path: pages to those who get, questions to those who post."""

    pages: Mapping[str, Callable[[], Response]]
    questions: Mapping[str, Question]
    # Pages that are files of the program, of which nothing is anybody's own: they are had without a token.
    files: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Limits:
    """What who asks may hold."""

    # Each is a thread, until it has its answer.
    connections: int = 128
    # For the first line and headers of a request; for its body; and for a part of an answer to be taken.
    head_s: float = 10.0
    body_s: float = 10.0
    answer_s: float = 10.0


@dataclass(frozen=True)
class Address:
    """Where a server listens (port 0: any that is free), and what who asks has to say, if anything."""

    host: str = HOST
    port: int = 0
    token: str = ""


class Server(BoundedServer):
    """Bound, and running when `serve_forever` is called."""

    def __init__(self, site: Site, at: Address, limits: Limits | None = None) -> None:
        """A `UserError` says why it cannot listen there."""
        if not at.token and not is_loopback(at.host):
            raise UserError(
                f"listen on {at.host} without a token: whoever reaches it could ask",
                "set one, or listen on the loopback address",
            )
        self.limits = limits or Limits()
        try:
            super().__init__((at.host, at.port), _Handler, self.limits.connections)
        except (OSError, OverflowError) as error:
            raise UserError(f"listen on {at.host}, port {at.port}: {error}", "name another with --port") from None
        self.site, self.token = site, at.token
        own = f"[{at.host}]" if ":" in at.host else at.host
        self.hosts = [f"{name}:{self.server_port}" for name in (own, "localhost")] if is_loopback(at.host) else []
        # For this machine, and for others, of which a firewall may keep some away.
        bound = str(self.server_address[0])
        host = bound if own_addresses.is_any(bound) else at.host
        self.url, self.others = own_addresses.urls(host, self.server_port, _OTHERS_MAX)
        self.is_ending = False

    def busy(self) -> bytes:
        """More connections than there are threads."""
        why = {"error": f"{self.limits.connections} connections are open"}
        return answer(HTTPStatus.SERVICE_UNAVAILABLE, _JSON, json.dumps(why).encode())

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away before his answer is no fault, and whoever is left at the end is none."""
        if not self.is_ending:
            super().handle_error(request, client_address)

    def serve_until_interrupted(self) -> None:
        """Says where it is, and answers until SIGINT or SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            print(self._told(), file=sys.stderr, flush=True)
            self.serve_forever()
        self.is_ending = True
        self.server_close()

    def _told(self) -> str:
        lines = [f"{self.url} (end with Ctrl-C)"]
        if self.others:
            lines.append(f"from other machines, if no firewall is between: {' '.join(self.others)}")
        if self.token:
            lines.append("whoever asks says the token; the page asks for it")
        return "\n".join(lines)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Handler(BaseHTTPRequestHandler):
    server: Server
    server_version = "scotfree"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self._timed = Timed(self.connection)
        # Whether an answer is on its way.
        self._has_begun = False
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        self._timed.within(self.server.limits.head_s)
        self._timed.head()
        super().handle_one_request()

    def parse_request(self) -> bool:
        try:
            return super().parse_request()
        except LongHeadError:
            self.send_error(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return False

    def do_GET(self) -> None:
        self._answer(self._page)

    def do_HEAD(self) -> None:
        self._answer(self._page)

    def do_POST(self) -> None:
        self._answer(self._question)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: what is asked is the user's own."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is no request that is known here."""
        status = HTTPStatus(code)
        self._refuse(Refused(status, message or status.phrase))

    def _answer(self, send: Callable[[], None]) -> None:
        self.connection.settimeout(self.server.limits.answer_s)
        try:
            self._check_host()
            if not (self.command in ("GET", "HEAD") and self.path in self.server.site.files):
                self._check_token()
            send()
        except Refused as refused:
            self._refuse(refused)
        except BusyError as error:
            again = {"Retry-After": str(RETRY_AFTER_S)}
            self._refuse(Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error), again))
        except UserError as error:
            self._refuse(Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(error)))
        except Exception:
            self.server.handle_error(self.request, self.client_address)
            if not self._has_begun:
                why = "a fault of the server's own, of which it says more where it was started"
                self._refuse(Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why))

    def _check_host(self) -> None:
        # Elsewhere it is the token that no other site knows.
        if self.server.hosts and self.headers.get("Host", "") not in self.server.hosts:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "this server is known by its loopback address only")

    def _check_token(self) -> None:
        said = self.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if self.server.token and not hmac.compare_digest(said, f"Bearer {self.server.token}".encode()):
            why = "say the token: Authorization: Bearer TOKEN"
            raise Refused(HTTPStatus.UNAUTHORIZED, why, {"WWW-Authenticate": "Bearer"})

    def _check_origin(self) -> None:
        """Only our own page asks: it comes from the host that it names, also through a proxy with TLS."""
        origin, host = self.headers.get("Origin"), self.headers.get("Host", "")
        schemes = ("http",) if self.server.hosts else ("http", "https")
        if origin is not None and origin not in [f"{scheme}://{host}" for scheme in schemes]:
            raise Refused(HTTPStatus.FORBIDDEN, "another site's page does not ask here")

    def _page(self) -> None:
        self._send(_of(self.server.site.pages, self.path, self.server.site.questions, "POST")())

    def _question(self) -> None:
        question = _of(self.server.site.questions, self.path, self.server.site.pages, "GET, HEAD")
        if self.headers.get_content_type() != _JSON:
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a question is {_JSON}")
        self._check_origin()
        body = self._body()
        with question.turns.taken():
            response = question.answer(body)
            if not isinstance(response.parts, list):
                return self._send(response)
        # Whoever takes it slowly holds nobody else up.
        self._send(response)

    def _body(self) -> bytes:
        """What was posted; of what is too long nothing is read."""
        said = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (said.isascii() and said.isdigit()):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "say the question's Content-Length")
        length = int(said) if len(said) < _DIGITS_MAX else BODY_BYTES_MAX + 1
        if not 0 < length <= BODY_BYTES_MAX:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a question has 1 to {BODY_BYTES_MAX} bytes")
        self._timed.body()
        self._timed.within(self.server.limits.body_s)
        try:
            data = self.rfile.read(length)
        except TimeoutError:
            data = b""
        self.connection.settimeout(self.server.limits.answer_s)
        if len(data) < length:
            raise Refused(HTTPStatus.REQUEST_TIMEOUT, "the question did not come whole")
        return data

    def _refuse(self, refused: Refused) -> None:
        body = json.dumps({"error": printable(str(refused))}).encode()
        self._send(Response(_JSON, [body], refused.status, headers=refused.headers))
        # It may be that not all was read of what was asked.
        self.wfile.flush()
        self._timed.part()

    def _send(self, response: Response) -> None:
        self._has_begun = True
        self.send_response(response.status)
        self.send_header("Content-Type", response.kind)
        if isinstance(response.parts, list):
            self.send_header("Content-Length", str(sum(map(len, response.parts))))
        for name, value in {**_HEADERS, **response.headers}.items():
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


def _of(by_path: Mapping[str, Found], path: str, others: Mapping[str, Any], methods: str) -> Found:
    if path in by_path:
        return by_path[path]
    if path in others:
        raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"this is asked for by {methods}", {"Allow": methods})
    raise Refused(HTTPStatus.NOT_FOUND, "no such page")
