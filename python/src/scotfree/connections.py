"""A server of HTTP whose clients hold bounded parts of it: connections, and of each its time and its bytes."""

from __future__ import annotations

import io
import socket
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any, Final

from scotfree.own_addresses import is_any

# Of a request's first line and headers together.
HEAD_BYTES_MAX: Final = 64 << 10
# When whoever finds all of it held may come again: an SDK gives a batch up after ten seconds.
RETRY_AFTER_S: Final = 1
# How long, and how many, connections that are turned away stay open, so that they hear why.
_LEAVING_S: Final = 1.0
_LEAVING_MAX: Final = 64
_CLOSING_BYTES_MAX: Final = 1 << 20


class LongHeadError(Exception):
    """A request whose head has more bytes than are read of one."""


class Timed(io.RawIOBase):
    """What a connection says; a `TimeoutError` once its time is over, however slowly it speaks."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = 0.0
        # Of a head; none within a body, which is counted by whoever reads it.
        self._left: int | None = None

    def within(self, seconds: float) -> None:
        """All that is read from now on comes in that time."""
        self._until = time.monotonic() + seconds

    def head(self) -> None:
        """A head begins. What is read ahead for the one who reads is no part of it."""
        self._left = HEAD_BYTES_MAX + io.DEFAULT_BUFFER_SIZE

    def body(self) -> None:
        """The head is over."""
        self._left = None

    def readable(self) -> bool:
        """As of any stream."""
        return True

    def readinto(self, buffer: Any) -> int:
        """What there is, as soon as there is something; a `LongHeadError` if that is too much of a head."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self._left is not None and self._left <= 0:
            raise LongHeadError
        self._connection.settimeout(left)
        count = self._connection.recv_into(buffer)
        if self._left is not None:
            self._left -= count
        return count

    def part(self) -> None:
        """Reads on after the last answer: where something is left unread, closing may lose the answer."""
        self.body()
        self.within(_LEAVING_S)
        unread = bytearray(io.DEFAULT_BUFFER_SIZE)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
            while self.readinto(unread):
                pass


class BoundedServer(ThreadingHTTPServer):
    """A thread for each connection, as long as there are no more than so many."""

    # Connections that wait to be taken: a browser and its tabs, or many senders.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: Any, connections_max: int) -> None:
        """Bound (port 0: any that is free), and running when `serve_forever` is called."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(connections_max)
        # Connections that were turned away, each with when it is closed: of the accepting thread alone.
        self._leaving: deque[tuple[float, socket.socket]] = deque()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """On all addresses also those of IPv4, whatever the system's default is."""
        if self.address_family == socket.AF_INET6 and is_any(str(self.server_address[0])):
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def busy(self) -> bytes:
        """What a connection hears for which there is no thread: a whole answer."""
        raise NotImplementedError

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, if there is one left."""
        if not self._free.acquire(blocking=False):
            return self._turn_away(request)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # The system has no more threads.
            self._free.release()
            self._turn_away(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """As above; then there is one more."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def _turn_away(self, connection: socket.socket) -> None:
        """Says so without waiting for anything."""
        with suppress(OSError):
            connection.setblocking(False)
            connection.send(self.busy())
            connection.shutdown(socket.SHUT_WR)
        # One that is closed while its sender speaks is reset, and the answer may be lost.
        self._leaving.append((time.monotonic() + _LEAVING_S, connection))
        self.close_leaving(len(self._leaving) - _LEAVING_MAX)

    def service_actions(self) -> None:
        """Between two connections, and every half of a second."""
        now = time.monotonic()
        self.close_leaving(sum(until <= now for until, _ in self._leaving))

    def close_leaving(self, count: int | None = None) -> None:
        """Closes so many of those that were turned away, the first ones; all if not told."""
        for _ in range(len(self._leaving) if count is None else count):
            _, connection = self._leaving.popleft()
            with suppress(OSError):
                connection.recv(_CLOSING_BYTES_MAX)
            connection.close()

    def server_close(self) -> None:
        """Nobody waits any more."""
        super().server_close()
        self.close_leaving()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever goes away before his answer is no fault."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def answer(status: HTTPStatus, kind: str, body: bytes) -> bytes:
    """What is answered without a handler to whoever is to come again, by which the connection ends."""
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {kind}\r\nRetry-After: {RETRY_AFTER_S}\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
