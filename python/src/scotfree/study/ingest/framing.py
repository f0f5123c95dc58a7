"""How messages of OTLP stand in a file: alone, behind a length of four bytes, or behind a varint.

The collector's file exporter writes protobuf behind lengths of four bytes, the highest first; where it compresses
each message by itself, so it does with JSON too. What is held at a time is one message, of a bounded length.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from enum import Enum
from typing import Final, Protocol

import zstandard

from scotfree import _native
from scotfree.study.ingest.opening import ENDS_EARLY, ZSTD_MAGIC

# A longer message is skipped, and the ledger says so.
MESSAGE_BYTES_MAX: Final = 256 << 20
_VARINT_BYTES_MAX: Final = 10
_SKIP_BYTES: Final = 1 << 20

TOO_LONG: Final = f"a message is longer than {MESSAGE_BYTES_MAX >> 20} MiB"


class Losses(Protocol):
    """Who is told of what is lost."""

    def drop(self, reason: str) -> None:
        """Of a record."""

    def note(self, reason: str) -> None:
        """Of something that is no record, or counted as one elsewhere."""


class Framing(Enum):
    """What stands before a message."""

    # Nothing: the file is one message. Its fields are read one by one, as messages of their own: the concatenation
    # of messages is their union.
    NONE = "none"
    FIXED = "fixed"
    VARINT = "varint"


def framing_of(head: bytes) -> tuple[Framing, str] | None:
    """The framing and the signal ("traces", "metrics"), or None if this is not how a file of OTLP begins."""
    if signal := _native.signal(head):
        return Framing.NONE, signal
    if len(head) > 4 and (signal := _signal_of_payload(head[4 : 4 + int.from_bytes(head[:4], "big")])):
        return Framing.FIXED, signal
    length, size = _varint(head)
    if size and (signal := _native.signal(head[size : size + length])):
        return Framing.VARINT, signal
    return None


def _signal_of_payload(payload: bytes) -> str | None:
    plain = decompressed(payload)
    if plain.startswith(b"{"):
        return "traces" if b'"resourceSpans"' in plain else "metrics" if b'"resourceMetrics"' in plain else None
    return _native.signal(plain)


def decompressed(payload: bytes) -> bytes:
    """A message that may have been compressed by itself; as much as can be read, and no more than a message."""
    if not payload.startswith(ZSTD_MAGIC):
        return payload
    plain = bytearray()
    try:
        with zstandard.ZstdDecompressor().stream_reader(payload) as stream:
            while len(plain) <= MESSAGE_BYTES_MAX and (piece := stream.read(_SKIP_BYTES)):
                plain += piece
    except zstandard.ZstdError:
        pass
    return bytes(plain)


def messages(stream: io.BufferedReader, framing: Framing, losses: Losses) -> Iterator[bytes]:
    """The messages of a file, one after the other. The last one may be cut off."""
    while header := _header(stream, framing):
        prefix, length = header
        if length > MESSAGE_BYTES_MAX:
            losses.drop(TOO_LONG)
            _skip(stream, length)
            continue
        payload = stream.read(length)
        if len(payload) < length:
            losses.note(ENDS_EARLY)
        yield prefix + payload if prefix else payload


def _header(stream: io.BufferedReader, framing: Framing) -> tuple[bytes, int] | None:
    """What is read already and belongs to the message, and the length of the rest; None at the file's end.

    Where a length should stand and none does, what is left is given to the decoder, which says what it is.
    """
    if framing is Framing.FIXED:
        size = stream.read(4)
        return (b"", int.from_bytes(size, "big")) if len(size) == 4 else (size, 0) if size else None
    tag = stream.read(1) if framing is Framing.NONE else b""
    length, taken = _read_varint(stream)
    if length is None:
        rest = tag + taken + stream.read(MESSAGE_BYTES_MAX)
        return (rest, 0) if rest else None
    return (tag + taken if framing is Framing.NONE else b""), length


def _read_varint(stream: io.BufferedReader) -> tuple[int | None, bytes]:
    """The number that comes next, if one does, and the bytes taken."""
    taken = b""
    while len(taken) < _VARINT_BYTES_MAX and (byte := stream.read(1)):
        taken += byte
        if byte[0] < 0x80:
            return _varint(taken)[0], taken
    return None, taken


def _varint(head: bytes) -> tuple[int, int]:
    """The number that bytes begin with, and how many are its own: none if it does not end."""
    value = 0
    for index, byte in enumerate(head[:_VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, index + 1
    return 0, 0


def _skip(stream: io.BufferedReader, length: int) -> None:
    while length > 0 and (piece := stream.read(min(length, _SKIP_BYTES))):
        length -= len(piece)
