"""OTLP as protobuf: files of bare or framed messages, decoded in Rust (crates/scotfree-study/src/otlp)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scotfree.study.ingest.framing import Framing, decompressed, framing_of, messages
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.otlp import Otlp
from scotfree.study.ingest.reader import Batch, Source

_HEAD_BYTES = 64 * 1024


class OtlpProto:
    """See the module."""

    form = "otlp-proto"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first record of the first message."""
        return framing_of(head) is not None

    def read(self, source: Source) -> Iterator[Batch]:
        """Message after message. The collector puts JSON behind lengths too, where it compresses it."""
        otlp = Otlp(source)
        found = framing_of(head_of(source.path, _HEAD_BYTES))
        with opened(source) as stream:
            for message in messages(stream, found[0] if found else Framing.NONE, otlp):
                plain = decompressed(message)
                yield from otlp.json(plain) if plain.startswith(b"{") else otlp.proto(plain)
        yield otlp.rest()
