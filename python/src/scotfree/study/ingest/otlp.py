"""What both of OTLP's forms share: messages in, batches out. JSON is made protobuf first: both mean the same.

A span is a hedge (it repeats a call that is still under way) if it, or one of its links, has an attribute of
`attributes.HEDGES`: `rpc.attempt.kind=hedge` or `scotfree.link=hedge`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from scotfree import _native
from scotfree.study import schema
from scotfree.study.ingest import attributes, decoded, status
from scotfree.study.ingest.opening import ENDS_EARLY
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source
from scotfree.study.ingest.series import series_of

NOT_JSON: Final = "not JSON"
WRONG_KIND: Final = "a value is not of its field's kind and was left out"
# As the decoder says it.
_ENDS_EARLY: Final = "ends early"
# All that JSON escapes; `half` if it is one of a pair of surrogates and the other is not there.
_ESCAPES: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)"
)
_NO_LETTER: Final = rb"\ufffd"
TRACES: Final = "traces"
METRICS: Final = "metrics"
# Attribute of a point or its resource -> column of `metric`.
METRIC_LABELS: Final[dict[str, str]] = {
    **{key: to for key, to in attributes.TEXTS.items() if to in schema.METRIC.names},
    "rpc.method": "method",
    "http.route": "method",
}


def span_decoder() -> _native.SpanDecoder:
    """The decoder of spans, with the table of what an attribute says."""
    return _native.SpanDecoder(
        list(attributes.INTEGERS.items()),
        list(attributes.FLOATS.items()),
        list(attributes.TEXTS.items()),
        list(attributes.HEDGES.items()),
        [list(status.GRPC_KEYS), list(status.HTTP_KEYS), list(status.TEXT_KEYS)],
        list(status.GRPC),
        list(status.HTTP.items()),
    )


class Otlp:
    """The records of one input."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._spans = span_decoder()
        self._metrics = _native.MetricDecoder(list(METRIC_LABELS.items()))
        # Whose record it is that cannot be read.
        self._latest: _native.SpanDecoder | _native.MetricDecoder = self._spans

    def drop(self, reason: str, detail: str | None = None) -> None:
        """A record that cannot even be read."""
        self._source.ledger.note(self._source.number, reason, record=self._latest.records, detail=detail)
        self._latest.skip_record()

    def note(self, reason: str, count: int = 1) -> None:
        """Something wrong that is no record."""
        number, record = self._source.number, self._latest.records
        self._source.ledger.note(number, reason, record=record, kept=True, count=count)

    def proto(self, message: bytes, signal: str) -> Iterator[Batch]:
        """The batches that a message fills; what is left over waits for the next one, or for `rest`."""
        if signal == METRICS:
            self._latest = self._metrics
            self._metrics.read(message)
            if self._metrics.rows >= BATCH_ROWS_MAX:
                yield self._metric_batch()
            return
        self._latest = self._spans
        self._spans.start(message)
        while not self._spans.decode(message, BATCH_ROWS_MAX):
            yield self._side_batch()

    def json(self, texts: Sequence[bytes]) -> Iterator[Batch]:
        """The same for texts of objects, of which each may be broken off: its last record is dropped then."""
        found = _transcoded(b"".join(texts))
        if len(texts) > 1 and any(broken for *_, broken in found):
            for text in texts:
                yield from self.json([text])
            return
        for signal, message, wrong, _ in found:
            if wrong:
                self.note(WRONG_KIND, wrong)
            yield from self.proto(message, signal)
        if broken := found[-1][3]:
            why, is_early = broken
            self.drop(ENDS_EARLY if is_early else NOT_JSON, why)

    def rest(self) -> Iterator[Batch]:
        """The rows that wait."""
        yield self._side_batch()
        if self._metrics.records:
            yield self._metric_batch()

    def _side_batch(self) -> Batch:
        self._tell(self._spans.troubles())
        rows, columns = self._spans.take()
        constants = {"input": self._source.number, "is_shared": False}
        return Batch("side", decoded.table(rows, columns, schema.SIDE, constants), rows)

    def _metric_batch(self) -> Batch:
        self._tell(self._metrics.troubles())
        rows, firsts, columns = self._metrics.take()
        table = decoded.table(rows, columns, schema.METRIC, {})
        at = table.column_names.index("series")
        return Batch("metric", table.set_column(at, table.field(at), _series(table.column(at))), rows + firsts)

    def _tell(self, troubles: list[tuple[str, int, int, bool]]) -> None:
        """What was wrong goes to the ledger."""
        for reason, record, count, kept in troubles:
            said = ENDS_EARLY if reason == _ENDS_EARLY else reason
            self._source.ledger.note(self._source.number, said, record=record, kept=kept, count=count)


def _transcoded(text: bytes) -> list[tuple[str, bytes, int, tuple[str, bool] | None]]:
    """A text's signals, each as protobuf, with how many values were wrong, and why it breaks off."""
    signals = [signal for signal, key in ((METRICS, b"Metrics"), (TRACES, b"Spans")) if key in text]
    return [(signal, *transcoded(text, signal)) for signal in signals or [TRACES]]


def transcoded(text: bytes, signal: str) -> tuple[bytes, int, tuple[str, bool] | None]:
    """See `_native.from_json`. A text does not break at half of a letter, as whoever cuts names writes it."""
    found = _native.from_json(text, signal)
    if found[2] is None or found[2][1]:
        return found
    whole = _ESCAPES.sub(lambda escape: _NO_LETTER if escape["half"] else escape[0], text)
    return found if whole == text else _native.from_json(whole, signal)


def _series(names: pa.ChunkedArray) -> pa.Array:
    """Names of metrics as the series that they mean."""
    coded = names.combine_chunks()
    meant = pa.array([series_of(name) for name in coded.dictionary.to_pylist()], pa.string())
    return meant.take(coded.indices).dictionary_encode()
