"""A request's body: read in time, within a budget of bytes, however it is framed and compressed."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator
from email.message import Message
from typing import Final, Protocol

from scotfree.study.watch.refusing import BUSY, DAMAGED, KIND, LARGE, LENGTH, Refused

# As the collector's receiver has it, also of what comes out of gzip.
BODY_BYTES_MAX: Final = 20 << 20
_PIECE_BYTES: Final = 64 << 10
_LINE_BYTES_MAX: Final = 1 << 10
_TRAILERS_MAX: Final = 16
GZIP: Final = "gzip"
# As zlib is told that gzip's header stands before.
_GZIP_WINDOW: Final = 31


class Stream(Protocol):
    """What a body is read from."""

    def read1(self, size: int = -1, /) -> bytes:
        """What there is."""

    def readline(self, size: int = -1, /) -> bytes:
        """Up to the end of a line."""


class Budget:
    """Bytes that all requests together may hold."""

    def __init__(self, bytes_max: int) -> None:
        self._left = bytes_max
        self._lock = threading.Lock()

    def take(self, count: int) -> bool:
        """Whether there are as many."""
        with self._lock:
            if count > self._left:
                return False
            self._left -= count
            return True

    def give(self, count: int) -> None:
        """They are free again."""
        with self._lock:
            self._left += count


class Body:
    """The body of one request. What it holds of the budget is given back at the end of the block."""

    def __init__(self, headers: Message, stream: Stream, budget: Budget) -> None:
        """`Refused` if it is of no length or kind that is read."""
        self._stream = stream
        self._budget = budget
        self._held = 0
        # What came of it, with what frames it.
        self._came = 0
        self._length = _length(headers)
        self.is_read = self._length == 0
        # One for all who read: each goes on where the one before was.
        self._pieces = self._unframed()
        self._encoding = headers.get("Content-Encoding", "identity").strip().lower()

    def __enter__(self) -> Body:
        return self

    def __exit__(self, *_: object) -> None:
        self._budget.give(self._held)

    def read(self) -> bytes:
        """All of it, decompressed."""
        if self._encoding not in ("identity", "", GZIP):
            raise Refused(KIND, f"Content-Encoding {self._encoding[:40]}: only {GZIP} is read")
        if self._length is not None and self._length > BODY_BYTES_MAX:
            raise _too_large()
        whole = bytearray()
        for piece in _inflated(self._bounded()) if self._encoding == GZIP else self._bounded():
            if len(whole) + len(piece) > BODY_BYTES_MAX:
                raise _too_large()
            self._hold(len(piece))
            whole += piece
        return bytes(whole)

    def skip(self, bytes_max: int) -> None:
        """Reads on without keeping it, so that its sender hears why. `is_read` says whether that was all."""
        bytes_max += self._came
        for _ in self._pieces:
            if self._came > bytes_max:
                return

    def _bounded(self) -> Iterator[bytes]:
        """What comes of gzip may be nothing, however much is sent."""
        for piece in self._pieces:
            if self._came > BODY_BYTES_MAX:
                raise _too_large()
            yield piece

    def _hold(self, count: int) -> None:
        if not self._budget.take(count):
            raise Refused(BUSY, "other requests hold all the memory that there is for them")
        self._held += count

    def _unframed(self) -> Iterator[bytes]:
        """As it comes, without what frames it."""
        yield from self._chunks() if self._length is None else self._counted(self._length)
        self.is_read = True

    def _counted(self, count: int) -> Iterator[bytes]:
        while count:
            piece = self._stream.read1(min(count, _PIECE_BYTES))
            if not piece:
                raise Refused(DAMAGED, "the body ends early")
            count -= len(piece)
            self._came += len(piece)
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        """Chunk after chunk (RFC 9112, 7.1); extensions and trailers are passed over."""
        while size := self._chunk_size():
            yield from self._counted(size)
            if self._line():
                raise Refused(DAMAGED, "a chunk is longer than it says")
        for _ in range(_TRAILERS_MAX):
            if not self._line():
                return
        raise Refused(DAMAGED, "too many trailers")

    def _chunk_size(self) -> int:
        digits = self._line().partition(b";")[0].strip()
        if not digits or len(digits) > 8 or digits.strip(b"0123456789abcdefABCDEF"):
            raise Refused(DAMAGED, "a chunk has no size")
        return int(digits, 16)

    def _line(self) -> bytes:
        line = self._stream.readline(_LINE_BYTES_MAX)
        self._came += len(line)
        if not line.endswith(b"\n"):
            raise Refused(DAMAGED, "the body ends early")
        return line.rstrip(b"\r\n")


def _length(headers: Message) -> int | None:
    """Of the body; None if it comes in chunks."""
    lengths, coding = headers.get_all("Content-Length", []), headers.get("Transfer-Encoding")
    if coding is not None:
        if lengths or coding.strip().lower() != "chunked":
            raise Refused(DAMAGED, "Transfer-Encoding is not chunked alone")
        return None
    if not lengths:
        raise Refused(LENGTH, "neither Content-Length nor chunks")
    said = lengths[0].strip()
    if len(set(lengths)) > 1 or not (said.isascii() and said.isdigit()) or len(said) > 18:
        raise Refused(DAMAGED, "Content-Length is no length")
    return int(said)


def _inflated(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """What gzip stands for, a piece at a time: what a few bytes grow to is counted before it is held."""
    decoder = zlib.decompressobj(_GZIP_WINDOW)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                # It may have members, one behind the other.
                decoder = zlib.decompressobj(_GZIP_WINDOW) if decoder.eof else decoder
                yield decoder.decompress(rest, _PIECE_BYTES)
                rest = decoder.unused_data or decoder.unconsumed_tail
    except zlib.error as error:
        raise Refused(DAMAGED, f"the body is no gzip: {error}") from None
    while not decoder.eof and (piece := decoder.decompress(b"", _PIECE_BYTES)):
        yield piece
    if not decoder.eof:
        raise Refused(DAMAGED, "the body's gzip ends early")


def _too_large() -> Refused:
    return Refused(LARGE, f"a body has at most {BODY_BYTES_MAX >> 20} MiB, decompressed too: send smaller batches")
