"""From records in JSON to rows of `side`: each record becomes a row or a row of the ledger, and is counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final

import orjson

from scotfree.study.ingest import attributes
from scotfree.study.ingest.fields import Unfit
from scotfree.study.ingest.opening import head_of
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source, sides

# A longer line is no document of lines; a longer document is read as one.
LINE_BYTES_MAX: Final = 8 << 20
_LINES_TRIED: Final = 3
NOT_JSON: Final = "not JSON"
CUT: Final = "the document is cut or damaged; nothing behind that place was read"

# A row of `side`, and the attributes that fill what it lacks, nearest first.
Side = tuple[dict[str, Any], list[Mapping[str, Any]]]


class Intake:
    """The rows of one input under way."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.records = 0
        self._rows = sides()

    def add(self, make: Callable[..., Side], *parts: Any) -> None:
        """Takes a record, of whose parts `make` makes a row."""
        record, self.records = self.records, self.records + 1
        try:
            row, holders = make(*parts)
        except Unfit as error:
            self.source.ledger.note(self.source.number, str(error), record=record)
            return
        for holder in holders:
            for key in attributes.take(row, holder):
                self.note(f"attribute {key} is no such number", record)
        if row.get("service") is None:
            row["service"] = "unknown"
            self.note("no service is named", record)
        self._rows.add({**row, "input": self.source.number, "record": record})

    def note(self, reason: str, record: int, detail: str | None = None) -> None:
        """A trouble of a record that is kept."""
        self.source.ledger.note(self.source.number, reason, record=record, kept=True, detail=detail)

    def drop(self, reason: str, detail: str | None = None) -> None:
        """A record that could not even be taken apart."""
        self.source.ledger.note(self.source.number, reason, record=self.records, detail=detail)
        self.records += 1

    def parse(self, text: bytes) -> Any:
        """The value that a text holds; None, and a row of the ledger, if it holds none."""
        try:
            return orjson.loads(text)
        except ValueError as error:
            self.drop(NOT_JSON, str(error)[:200])
            return None

    def batch(self, *, last: bool = False) -> Iterator[Batch]:
        """The rows that have come together, if they are enough or the last."""
        if last or self._rows.count >= BATCH_ROWS_MAX:
            yield self._rows.take()


def is_lines(source: Source) -> bool:
    """Whether each line is a document of its own. The first one may be damaged."""
    for line in head_of(source.path, LINE_BYTES_MAX).split(b"\n", _LINES_TRIED)[:_LINES_TRIED]:
        if _is_document(line.strip()):
            return True
        if line.rstrip()[-1:] in (b"", b"[", b"{", b","):
            return False
    return False


def _is_document(line: bytes) -> bool:
    try:
        return line[:1] in (b"{", b"[") and orjson.loads(line) is not None
    except ValueError:
        return False


def lines(file: BinaryIO, intake: Intake) -> Iterator[Any]:
    """The documents of a file of lines."""
    while line := file.readline(LINE_BYTES_MAX):
        if len(line) == LINE_BYTES_MAX and not line.endswith(b"\n"):
            intake.drop("the line is too long")
            _skip_line(file)
        elif line.strip() and (document := intake.parse(line)) is not None:
            yield document


def _skip_line(file: BinaryIO) -> None:
    while (part := file.readline(LINE_BYTES_MAX)) and not part.endswith(b"\n"):
        pass
