"""CSV of any shape, by its columns' names or a mapping of them: see `tables`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scotfree.study.ingest import csv_text, tables
from scotfree.study.ingest.inputs import HEAD_BYTES
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.reader import Batch, Source

_COLUMNS_MIN: Final = 3
_SAMPLED: Final = 200
_OTHERS: Final = (b"{", b"[", b"<", b"#", b"%")


@dataclass(frozen=True)
class Beginning:
    """A table's columns and first rows."""

    names: Sequence[str]
    sample: dict[str, list[str | None]]
    delimiter: str


class CsvTable:
    """See the module."""

    form = "csv"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By columns that say by themselves what they are."""
        found = beginning(head)
        return found is not None and tables.is_known(found.names, found.sample)

    def has(self, head: bytes, mapping: ColumnMap) -> bool:
        """Whether it has a column that the mapping names."""
        found = beginning(head)
        return found is not None and any(column.name in found.names for column in mapping.columns.values())

    def read(self, source: Source) -> Iterator[Batch]:
        """Block by block."""
        found = beginning(head_of(source.path, HEAD_BYTES))
        if found is None:
            source.ledger.note(source.number, "there is no line with the names of columns: not read")
            return
        plan = tables.plan(found.names, found.sample, source.mapping, source.path)
        tables.note(plan, source)
        shape = csv_text.Shape(found.names, plan.theirs, found.delimiter, is_free=True)
        with opened(source) as file:
            file.readline(csv_text.LINE_BYTES_MAX)
            yield from _read(file, shape, plan, source)


def _read(file: io.BufferedReader, shape: csv_text.Shape, plan: tables.Plan, source: Source) -> Iterator[Batch]:
    first = 0
    for block in csv_text.blocks(file, is_free=True):
        for batch in csv_text.parsed(block, shape, source):
            yield from tables.rows(plan, batch, first, source)
            first += batch.num_rows


def beginning(head: bytes) -> Beginning | None:
    """Of a file that begins so; none if that is no table."""
    lines = head.split(b"\n")
    if len(lines) < 2 or head.lstrip()[:1] in _OTHERS or b"\0" in lines[0]:
        return None
    delimiter = csv_text.delimiter_of(lines[0])
    names = _distinct(csv_text.fields(lines[0], delimiter))
    if len(names) < _COLUMNS_MIN:
        return None
    # The last line may be cut.
    rows = [csv_text.fields(line, delimiter) for line in lines[1:-1][:_SAMPLED] or lines[1:]]
    whole = [row for row in rows if len(row) == len(names)]
    if any(rows) and not whole:
        return None
    values = [
        [None if value in csv_text.NULLS else value for value in column] for column in zip(*whole, strict=True)
    ]
    return Beginning(names, dict(zip(names, values, strict=True)) if values else {}, delimiter)


def _distinct(names: Sequence[str]) -> list[str]:
    """Each name once: of two alike the later one with its place."""
    found: list[str] = []
    for at, name in enumerate(names):
        word = name.strip() or f"unnamed {at}"
        found.append(f"{word} {at}" if word in found else word)
    return found
