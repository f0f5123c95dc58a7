"""What both of OTLP's forms share: messages in, batches out. JSON is made protobuf first: both mean the same.

A span is a hedge (it repeats a call that is still under way) if it, or one of its links, has an attribute of
`attributes.HEDGES`: `rpc.attempt.kind=hedge` or `scotfree.link=hedge`.
"""

from __future__ import annotations

from collections.abc import Iterator

from scotfree import _native
from scotfree.study import schema
from scotfree.study.ingest import attributes, decoded, status
from scotfree.study.ingest.framing import ENDS_EARLY
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source

NOT_JSON = "not JSON"
WRONG_KIND = "a value is not of its field's kind and was left out"


class Otlp:
    """The records of one input."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._spans = _native.SpanDecoder(
            list(attributes.INTEGERS.items()),
            list(attributes.FLOATS.items()),
            list(attributes.TEXTS.items()),
            list(attributes.HEDGES.items()),
            [list(status.GRPC_KEYS), list(status.HTTP_KEYS), list(status.TEXT_KEYS)],
            list(status.GRPC),
            list(status.HTTP.items()),
        )

    def drop(self, reason: str, detail: str | None = None) -> None:
        """A record that cannot even be read."""
        self._source.ledger.note(self._source.number, reason, record=self._spans.records, detail=detail)
        self._spans.skip_record()

    def note(self, reason: str, count: int = 1) -> None:
        """Something wrong that is no record."""
        number, record = self._source.number, self._spans.records
        self._source.ledger.note(number, reason, record=record, kept=True, count=count)

    def proto(self, message: bytes) -> Iterator[Batch]:
        """The batches that a message fills; what is left over waits for the next one, or for `rest`."""
        self._spans.start(message)
        while not self._spans.decode(message, BATCH_ROWS_MAX):
            yield self.rest()

    def json(self, text: bytes) -> Iterator[Batch]:
        """The same for a text of objects. The record in which it breaks off is dropped."""
        message, wrong, broken = _native.from_json(text, "traces")
        if wrong:
            self.note(WRONG_KIND, wrong)
        yield from self.proto(message)
        if broken:
            why, is_early = broken
            self.drop(ENDS_EARLY if is_early else NOT_JSON, why)

    def rest(self) -> Batch:
        """The rows that wait. What was wrong goes to the ledger."""
        for reason, record, count, kept in self._spans.troubles():
            self._source.ledger.note(self._source.number, reason, record=record, kept=kept, count=count)
        rows, columns = self._spans.take()
        constants = {"input": self._source.number, "is_shared": False}
        return Batch("side", decoded.table(rows, columns, schema.SIDE, constants), rows)
