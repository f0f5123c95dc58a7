"""OTLP as protobuf: files of bare or framed messages, decoded in Rust (crates/scotfree-study/src/otlp)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scotfree import _native
from scotfree.study.ingest.framing import Framing, decompressed, framing_of, messages
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.otlp import TRACES, Otlp
from scotfree.study.ingest.reader import Batch, Source

_HEAD_BYTES = 64 * 1024


class OtlpProto:
    """See the module."""

    form = "otlp-proto"

    def __init__(self, framing: Framing | None = None) -> None:
        """Of spans framed so, where that is known: a first span far from the beginning does not tell."""
        self._framing = framing

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first record of the first message."""
        return framing_of(head) is not None

    def read(self, source: Source) -> Iterator[Batch]:
        """Message after message. The collector puts JSON behind lengths too, where it compresses it."""
        otlp = Otlp(source)
        framing, signal = self._found(source)
        with opened(source) as stream:
            for message in messages(stream, framing, otlp):
                plain = decompressed(message)
                if plain.startswith(b"{"):
                    yield from otlp.json([plain])
                else:
                    yield from otlp.proto(plain, _native.signal(plain) or signal)
        yield from otlp.rest()

    def _found(self, source: Source) -> tuple[Framing, str]:
        if self._framing is not None:
            return self._framing, TRACES
        return framing_of(head_of(source.path, _HEAD_BYTES)) or (Framing.NONE, TRACES)
