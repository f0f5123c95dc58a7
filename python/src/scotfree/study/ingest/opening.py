"""Opens an input: a buffered stream of its bytes, whether they lie there plain, as gzip or as Zstandard.

The form is told by the first bytes, not by the file's name. What is held at a time is bounded, also for bytes
that were made to grow; a stream that is cut off or damaged ends where that is, with a row of the ledger.
"""

from __future__ import annotations

import codecs
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import zstandard

from scotfree.study.ingest.reader import Source

# Whatever is counted beside it: how much is lost nobody knows.
ENDS_EARLY: Final = "ends early: what followed is not known"
DAMAGED: Final = "compressed bytes are damaged"

BUFFER_BYTES: Final = 1 << 20
GZIP_MAGIC: Final = b"\x1f\x8b"
ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
# A block of 4 bytes can stand for 128 KiB in Zstandard: of so many at once come at most 32 MiB.
_ZSTD_STEP_BYTES: Final = 1024
_GZIP_STEP_BYTES: Final = 64 * 1024
_OUT_BYTES_MAX: Final = 1 << 20
_ZSTD_WINDOW_BYTES_MAX: Final = 1 << 27

Complaint = Callable[[str, str], None]


@contextmanager
def opened(source: Source) -> Iterator[io.BufferedReader]:
    """The input's bytes, decompressed. Progress is told and the ledger written as they are read."""

    def complain(reason: str, detail: str) -> None:
        source.ledger.note(source.number, reason, kept=True, detail=detail)

    with _stream(source.path, source.progress, complain) as stream:
        yield stream


def head_of(path: Path, size: int) -> bytes:
    """The first bytes of an input, decompressed: fewer than asked for if it has no more that can be read."""
    with _stream(path, lambda _: None, lambda _reason, _detail: None) as stream:
        return stream.read(size)


def _stream(path: Path, progress: Callable[[int], None], complain: Complaint) -> io.BufferedReader:
    """The bytes, without the mark that editors put before texts."""
    stream = _decompressed(path, progress, complain)
    if stream.peek(len(codecs.BOM_UTF8)).startswith(codecs.BOM_UTF8):
        stream.read(len(codecs.BOM_UTF8))
    return stream


def _decompressed(path: Path, progress: Callable[[int], None], complain: Complaint) -> io.BufferedReader:
    file = _Counted(path, progress)
    magic = file.read(4)
    file.seek(0)
    if magic.startswith(GZIP_MAGIC):
        return io.BufferedReader(_Decompressed(file, _GZIP, complain), BUFFER_BYTES)
    if magic == ZSTD_MAGIC:
        return io.BufferedReader(_Decompressed(file, _ZSTD, complain), BUFFER_BYTES)
    return io.BufferedReader(file, BUFFER_BYTES)


class _Counted(io.FileIO):
    """A file that tells how far it was read."""

    def __init__(self, path: Path, progress: Callable[[int], None]) -> None:
        super().__init__(path, "rb")
        self._progress = progress

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self._progress(self.tell())
        return count

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(-1 if size is None else size)
        self._progress(self.tell())
        return piece


@dataclass(frozen=True)
class _Codec:
    """What gzip and Zstandard differ in."""

    # Bytes fed at once.
    step_bytes: int
    # A decoder of one frame or member.
    start: Callable[[], Any]
    # Feeds it: what comes out, and what it has not taken.
    feed: Callable[[Any, bytes], tuple[bytes, bytes]]
    error: type[Exception]


def _gzip_feed(decoder: Any, piece: bytes) -> tuple[bytes, bytes]:
    out = decoder.decompress(piece, _OUT_BYTES_MAX)
    return out, decoder.unconsumed_tail


def _zstd_feed(decoder: Any, piece: bytes) -> tuple[bytes, bytes]:
    return decoder.decompress(piece), b""


_GZIP: Final = _Codec(_GZIP_STEP_BYTES, lambda: zlib.decompressobj(wbits=31), _gzip_feed, zlib.error)
_ZSTD: Final = _Codec(
    _ZSTD_STEP_BYTES,
    lambda: zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX).decompressobj(),
    _zstd_feed,
    zstandard.ZstdError,
)


class _Decompressed(io.RawIOBase):
    """Frame after frame of a compressed file."""

    def __init__(self, file: _Counted, codec: _Codec, complain: Complaint) -> None:
        self._file = file
        self._codec = codec
        self._complain = complain
        self._compressed = b""
        self._out = memoryview(b"")
        # None between frames.
        self._decoder: Any = None
        self._is_over = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while not self._out and not self._is_over:
            self._out = memoryview(self._step())
        count = min(len(buffer), len(self._out))
        buffer[:count] = self._out[:count]
        self._out = self._out[count:]
        return count

    def _step(self) -> bytes:
        """What a piece of the file gives: nothing if it ends inside a header, or for good."""
        if not self._compressed:
            self._compressed = self._file.read(self._codec.step_bytes)
        if not self._compressed:
            return self._end(None if self._decoder is None else ENDS_EARLY, "the last frame lacks its end")
        if self._decoder is None:
            # Padding between and behind members is zeros; gzip allows it.
            self._compressed = self._compressed.lstrip(b"\0")
            self._decoder = self._codec.start() if self._compressed else None
            return b""
        try:
            return self._decode()
        except self._codec.error as error:
            return self._end(DAMAGED, f"{error}; near byte {self._file.tell()}")

    def _decode(self) -> bytes:
        out, left = self._codec.feed(self._decoder, self._compressed)
        if self._decoder.eof:
            left, self._decoder = self._decoder.unused_data, None
        self._compressed = left
        return out

    def _end(self, reason: str | None, detail: str) -> bytes:
        self._is_over = True
        if reason is not None:
            self._complain(reason, detail)
        return b""
