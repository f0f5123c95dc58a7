"""OTLP as protobuf: files of bare or framed messages, decoded in Rust (crates/scotfree-study/src/otlp)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scotfree import _native
from scotfree.study import schema
from scotfree.study.ingest import attributes, decoded
from scotfree.study.ingest.framing import Framing, decompressed, framing_of, messages
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source

_HEAD_BYTES = 64 * 1024


class OtlpProto:
    """See the module."""

    form = "otlp-proto"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first record of the first message."""
        return framing_of(head) is not None

    def read(self, source: Source) -> Iterator[Batch]:
        """Message after message."""
        spans = Spans(source)
        found = framing_of(head_of(source.path, _HEAD_BYTES))
        framing = found[0] if found else Framing.NONE
        with opened(source) as stream:
            for message in messages(stream, framing, spans):
                yield from spans.read(decompressed(message))
        yield spans.take()


class Spans:
    """The spans of one input: messages in, batches of `side` out."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._decoder = _native.SpanDecoder(
            list(attributes.INTEGERS.items()),
            list(attributes.FLOATS.items()),
            list(attributes.TEXTS.items()),
            list(attributes.ERROR_TYPES),
            list(attributes.HEDGES.items()),
            list(attributes.GRPC_CODES),
        )

    def drop(self, reason: str) -> None:
        """A record that cannot even be read."""
        self._decoder.drop_record(reason)

    def note(self, reason: str) -> None:
        """Something wrong that is no record."""
        self._source.ledger.note(self._source.number, reason, record=self._decoder.records, kept=True)

    def read(self, message: bytes) -> Iterator[Batch]:
        """The full batches that a message completes; what is left waits for the next one, or for `take`."""
        self._decoder.start(message)
        while not self._decoder.decode(message, BATCH_ROWS_MAX):
            yield self.take()

    def take(self) -> Batch:
        """The rows that wait. What was wrong goes to the ledger."""
        for reason, record, count, kept in self._decoder.troubles():
            self._source.ledger.note(self._source.number, reason, record=record, kept=kept, count=count)
        rows, found = self._decoder.take()
        constants = {"input": self._source.number, "is_shared": False}
        return Batch("side", decoded.table(rows, found, schema.SIDE, constants), rows)
