"""OTLP as JSON: an object in each line, as the collector's file exporter writes it, or one in the whole file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scotfree import _native
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.otlp import Otlp
from scotfree.study.ingest.reader import Batch, Source

# A longer line is skipped, and the ledger says so. It is also the longest file that is one object in many lines.
LINE_BYTES_MAX: Final = 64 << 20
# So little that it stays in the processor's cache from one step to the next.
_PIECE_BYTES: Final = 128 << 10
TOO_LONG: Final = f"a line is longer than {LINE_BYTES_MAX >> 20} MiB"


class OtlpJson:
    """See the module."""

    form = "otlp-json"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the field that every such object begins with."""
        return any(key in head for key in (b'"resourceSpans"', b'"resourceMetrics"', b'"resource_spans"'))

    def read(self, source: Source) -> Iterator[Batch]:
        """Some lines at a time."""
        otlp = Otlp(source)
        with opened(source) as stream:
            for texts in _pieces(_texts(stream, otlp)):
                yield from otlp.json(texts)
        yield from otlp.rest()


def _pieces(texts: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Some lines at a time: a line by itself costs more than a span. Nothing ends a piece."""
    held: list[bytes] = []
    size = 0
    for text in texts:
        if held and (not text or size + len(text) > _PIECE_BYTES):
            yield held
            held, size = [], 0
        if text:
            held.append(text)
            size += len(text)
    if held:
        yield held


def _texts(stream: io.BufferedReader, otlp: Otlp) -> Iterator[bytes]:
    """The lines; or all of them as one if the first is only the beginning of an object.

    Before a line that is dropped comes nothing: records are numbered in their order.
    """
    is_first = True
    while line := stream.readline(LINE_BYTES_MAX):
        if not line.strip():
            continue
        if is_first and _is_beginning(line):
            line += stream.read(LINE_BYTES_MAX - len(line))
            if stream.read(1):
                otlp.drop(TOO_LONG)
                return
        elif len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            yield b""
            otlp.drop(TOO_LONG)
            _skip_line(stream)
            continue
        is_first = False
        yield line


def _is_beginning(line: bytes) -> bool:
    """Whether an object begins here and ends elsewhere."""
    broken = _native.from_json(line, "traces")[2]
    return line.endswith(b"\n") and broken is not None and broken[1]


def _skip_line(stream: io.BufferedReader) -> None:
    while (piece := stream.readline(LINE_BYTES_MAX)) and not piece.endswith(b"\n"):
        pass
