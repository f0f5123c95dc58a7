"""CSV as columns of texts, a block of whole lines at a time. A damaged line costs that line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.csv as pacsv

from scotfree.study.ingest.reader import Source

LINE_BYTES_MAX: Final = 1 << 20
_BLOCK_BYTES: Final = 4 << 20
DELIMITERS: Final = (",", "\t", ";", "|")
# What programs write for a value that is not there.
NULLS: Final = ("", "null", "NULL", "None", "nan", "NaN", "NA", "N/A", "\\N", "<nil>")


@dataclass(frozen=True)
class Shape:
    """The columns of a file, those of them that are read, and how they are written."""

    names: Sequence[str]
    wanted: Sequence[str]
    delimiter: str = ","
    # Whether a quoted value may hold the end of a line, and whether `NULLS` are null.
    is_free: bool = False


def fields(line: bytes, delimiter: str) -> list[str]:
    """The values of a line; none if it is no CSV."""
    text = line.decode("utf-8", "replace").strip("\ufeff\r\n")
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return []


def delimiter_of(line: bytes) -> str:
    """What parts the values of a line: what it has most of."""
    return max(DELIMITERS, key=lambda one: line.count(one.encode()))


def blocks(file: io.BufferedReader, *, is_free: bool = False) -> Iterator[bytes]:
    """Whole lines, some 4 MiB at a time; where values may hold ends of lines, up to one outside of quotes."""
    while block := file.read(_BLOCK_BYTES) + file.readline(LINE_BYTES_MAX):
        if is_free and block.count(b'"') % 2:
            block += _to_quote(file)
        yield block


def _to_quote(file: io.BufferedReader) -> bytes:
    """The lines up to that in which the quotes are even; not without end, for a quote may be a value's own."""
    rest = bytearray()
    while len(rest) < LINE_BYTES_MAX and (line := file.readline(LINE_BYTES_MAX)):
        rest += line
        if line.count(b'"') % 2:
            break
    return bytes(rest)


def parsed(block: bytes, shape: Shape, source: Source) -> Iterator[pa.RecordBatch]:
    """The rows of whole lines. Where the parser gives up it tries the halves, down to the damaged line."""
    if not block.strip():
        return
    try:
        table = _parse(block.decode("utf-8", "replace").encode(), shape, source)
        yield from table.combine_chunks().to_batches()
    except pa.ArrowInvalid as error:
        lines = block.splitlines(keepends=True)
        if len(lines) == 1:
            source.ledger.note(source.number, "the line is damaged", detail=str(error)[:200])
            return
        yield from parsed(b"".join(lines[: len(lines) // 2]), shape, source)
        yield from parsed(b"".join(lines[len(lines) // 2 :]), shape, source)


def _parse(block: bytes, shape: Shape, source: Source) -> pa.Table:
    skipped: list[pacsv.InvalidRow] = []

    def skip(row: pacsv.InvalidRow) -> str:
        skipped.append(row)
        return "skip"

    table = pacsv.read_csv(
        pa.BufferReader(block),
        pacsv.ReadOptions(column_names=list(shape.names), use_threads=False, block_size=2 * len(block) + 1024),
        pacsv.ParseOptions(delimiter=shape.delimiter, invalid_row_handler=skip, newlines_in_values=shape.is_free),
        pacsv.ConvertOptions(
            column_types=dict.fromkeys(shape.wanted, pa.string()),
            include_columns=list(shape.wanted),
            null_values=list(NULLS),
            strings_can_be_null=shape.is_free,
        ),
    )
    # Only now: a block that fails is read again.
    for row in skipped:
        reason = f"a row has {row.actual_columns} columns, not {row.expected_columns}"
        source.ledger.note(source.number, reason, detail=row.text[:200])
    return table
