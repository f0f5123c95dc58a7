"""The receiver: OTLP/HTTP's POST /v1/traces, in protobuf and JSON, plain and as gzip.

Invariant: a success is answered when the system has the spans in a file, and what is answered by an error is not
kept. What a sender can hold of this process is bounded: its time, its bytes, a thread.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from scotfree.connections import HEAD_BYTES_MAX, BoundedServer, LongHeadError, Timed, answer
from scotfree.study.trouble import StudyError
from scotfree.study.watch import answers, counting
from scotfree.study.watch.body import BODY_BYTES_MAX, Body, Budget
from scotfree.study.watch.counting import Message
from scotfree.study.watch.refusing import (
    BROWSER,
    BUSY,
    HEAD,
    KIND,
    METHOD,
    PATH,
    PROTOCOL,
    SIGNAL,
    SLOW,
    Refused,
    Why,
)
from scotfree.study.watch.segments import Segments
from scotfree.study.watch.tally import Tally

TRACES_PATH: Final = "/v1/traces"
_OTHER_PATHS: Final = ("/v1/metrics", "/v1/logs", "/v1development/profiles")
# Each is a thread, which mostly waits for its exporter's next batch.
CONNECTIONS_MAX: Final = 256
# Of bodies that are being read, or wait to be decoded.
HELD_BYTES_MAX: Final = 128 << 20
DECODED_AT_ONCE: Final = 2
# Between two requests of a connection; for the head of one, and for its body.
IDLE_S: Final = 60.0
HEAD_S: Final = 10.0
BODY_S: Final = 30.0
# What is read of a body that is refused, so that its sender is there to hear why.
_SKIPPED_S: Final = 5.0
_SKIPPED_BYTES_MAX: Final = 2 * BODY_BYTES_MAX


class Receiver(BoundedServer):
    """Bound (port 0: any that is free), and running when `serve_forever` is called."""

    def __init__(self, address: tuple[str, int], segments: Segments, tally: Tally, *, limits: Limits) -> None:
        """A `StudyError` says why it cannot listen."""
        self.segments = segments
        self.tally = tally
        self.limits = limits
        self.budget = Budget(limits.held_bytes)
        self.decoding = threading.BoundedSemaphore(DECODED_AT_ONCE)
        self._under_way = 0
        self._quiet = threading.Condition()
        try:
            super().__init__(address, _Handler, limits.connections)
        except (OSError, OverflowError) as error:
            raise StudyError(
                f"listen on {address[0]}, port {address[1]}: {error}", "name another with --listen"
            ) from None

    def busy(self) -> bytes:
        """More connections than there are threads."""
        refused = Refused(BUSY, f"{self.limits.connections} connections are open")
        self.tally.refuse(refused)
        body = answers.error(answers.JSON, BUSY.status, str(refused))
        return answer(BUSY.status, answers.JSON, body)

    def begun(self) -> None:
        """A request is under way."""
        with self._quiet:
            self._under_way += 1

    def ended(self) -> None:
        """It no longer is."""
        with self._quiet:
            self._under_way -= 1
            self._quiet.notify_all()

    def end(self, within_s: float) -> None:
        """Takes no more connections, and waits for requests that are under way."""
        self.shutdown()
        self.socket.close()
        self.close_leaving()
        with self._quiet:
            self._quiet.wait_for(lambda: self._under_way == 0, within_s)


class Limits:
    """What senders may hold."""

    def __init__(
        self,
        *,
        connections: int = CONNECTIONS_MAX,
        held_bytes: int = HELD_BYTES_MAX,
        head_s: float = HEAD_S,
        body_s: float = BODY_S,
    ) -> None:
        self.connections = connections
        self.held_bytes = held_bytes
        self.head_s = head_s
        self.body_s = body_s


class _Handler(BaseHTTPRequestHandler):
    server: Receiver
    protocol_version = "HTTP/1.1"
    server_version = "scotfree"
    sys_version = ""
    # To write an answer.
    timeout = 10
    raw_requestline = b""

    def setup(self) -> None:
        super().setup()
        self._timed = Timed(self.connection)
        self.rfile = self._reader = io.BufferedReader(self._timed)
        self._kind = answers.JSON

    def handle_one_request(self) -> None:
        self._timed.within(IDLE_S)
        self._timed.head()
        try:
            self._reader.peek(1)
        except TimeoutError:
            self.close_connection = True
            return
        # From its first byte on.
        self._timed.within(self.server.limits.head_s)
        super().handle_one_request()

    def parse_request(self) -> bool:
        self._kind = answers.JSON
        try:
            return super().parse_request()
        except TimeoutError:
            self._refuse(Refused(SLOW, "its head did not come in time"), closes=True)
        except LongHeadError:
            self._refuse_head("its headers are too long")
        finally:
            self._timed.body()
        return False

    def do_POST(self) -> None:
        self.server.begun()
        try:
            self._post()
        finally:
            self.server.ended()

    def _post(self) -> None:
        self._kind = self.headers.get_content_type()
        try:
            with Body(self.headers, self.rfile, self.server.budget) as body:
                try:
                    self._take(body)
                except Refused as refused:
                    self._skip(body)
                    self._refuse(refused, closes=not body.is_read)
        except Refused as refused:
            self._refuse(refused, closes=True)

    def _take(self, body: Body) -> None:
        self._check()
        self._timed.within(self.server.limits.body_s)
        try:
            data = body.read()
        except TimeoutError:
            raise Refused(SLOW, "its body did not come in time") from None
        with self.server.decoding:
            message = _COUNTED[self._kind](data)
        if message.spans > message.rejected:
            self.server.segments.append(message.data, message.spans - message.rejected)
        self.server.tally.taken(message.spans - message.rejected, message.rejected, len(data))
        self._answer(HTTPStatus.OK, answers.taken(self._kind, message.rejected, message.reason))

    def _check(self) -> None:
        """Whether it is what is read here."""
        if "Origin" in self.headers:
            # Of whatever site: its name may have been pointed at this machine.
            raise Refused(BROWSER, "pages do not send here; let their server do it, or a Collector")
        path = self.path.partition("?")[0]
        if path in _OTHER_PATHS:
            raise Refused(SIGNAL, f"only {TRACES_PATH} is read here; export metrics and logs elsewhere")
        if path != TRACES_PATH:
            raise Refused(PATH, f"there is {TRACES_PATH} and nothing else")
        if self._kind not in _COUNTED:
            raise Refused(KIND, f"Content-Type: only {' and '.join(_COUNTED)} are read")

    def _skip(self, body: Body) -> None:
        self._timed.within(_SKIPPED_S)
        with suppress(Refused, TimeoutError):
            body.skip(_SKIPPED_BYTES_MAX)

    def _refuse(self, refused: Refused, *, closes: bool = False) -> None:
        self.server.tally.refuse(refused)
        self.close_connection = self.close_connection or closes
        kind = self._kind if self._kind in _COUNTED else answers.JSON
        self._answer(refused.why.status, answers.error(kind, refused.why.status, str(refused)), refused.why)

    def _refuse_head(self, why: str) -> None:
        self._refuse(Refused(HEAD, f"{why}: a head has at most {HEAD_BYTES_MAX >> 10} KiB"), closes=True)
        self._timed.part()

    def _answer(self, status: HTTPStatus, body: bytes, why: Why | None = None) -> None:
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        self.send_header("Content-Type", self._kind if self._kind in _COUNTED else answers.JSON)
        self.send_header("Content-Length", str(len(body)))
        if why is not None and why.retry_after_s is not None:
            self.send_header("Retry-After", str(why.retry_after_s))
        if why is METHOD:
            self.send_header("Allow", "POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the library refuses: what is no request of HTTP/1, or of a method that nobody has."""
        # Until a request is understood the library takes it for one of HTTP/0.9, which has no head.
        self.request_version = self.protocol_version
        if code == HTTPStatus.NOT_IMPLEMENTED:
            return self._refuse(Refused(METHOD, f"spans are sent by POST to {TRACES_PATH}"), closes=True)
        spoken = _spoken(self.raw_requestline)
        if code == HTTPStatus.REQUEST_URI_TOO_LONG and not spoken:
            return self._refuse_head("its first line is too long")
        if code == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
            return self._refuse_head(f"{explain or message}")
        self._refuse(Refused(PROTOCOL, spoken or f"{message}"), closes=True)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: the tally does, once."""


_COUNTED: Final[dict[str, Callable[[bytes], Message]]] = {
    answers.PROTOBUF: counting.of_protobuf,
    answers.JSON: counting.of_json,
}


def _spoken(line: bytes) -> str:
    """What a first line that is none of HTTP/1 is of, where that is known."""
    if line.startswith(b"PRI * HTTP/2"):
        return "it speaks gRPC, and here is HTTP/1.1: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    if line.startswith(b"\x16\x03"):
        return "it speaks TLS, and here is none: name the endpoint by http://"
    return ""
