"""Objects in JSON of any shape, a row each, by their keys' names or a mapping of them: see `tables`.

Lines, or an array. A member of an object inside has its keys before it, with points between; lists are not read.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from scotfree.study.ingest import fields, tables
from scotfree.study.ingest.csv_table import Beginning
from scotfree.study.ingest.inputs import HEAD_BYTES
from scotfree.study.ingest.intake import CUT, Intake, is_lines, lines
from scotfree.study.ingest.jaeger import Jaeger
from scotfree.study.ingest.json_stream import Malformed, elements
from scotfree.study.ingest.json_stream import Path as JsonPath
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source
from scotfree.study.ingest.skywalking import SkyWalking
from scotfree.study.ingest.zipkin import Zipkin

_OTHERS: Final = (Jaeger(), Zipkin(), SkyWalking())
_KEYS_MIN: Final = 3
_SAMPLED: Final = 200
_DEPTH_MAX: Final = 4
_STREAM_DEPTH: Final = 2

_Row = dict[str, str]


class JsonTable:
    """See the module."""

    form = "json-table"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By keys that say by themselves what they are, unless they are another form's."""
        if any(other.recognises(path, head) for other in _OTHERS):
            return False
        found = beginning(head)
        return found is not None and tables.is_known(found.names, found.sample)

    def has(self, head: bytes, mapping: ColumnMap) -> bool:
        """Whether its objects have a key that the mapping names."""
        found = beginning(head)
        return found is not None and any(column.name in found.names for column in mapping.columns.values())

    def read(self, source: Source) -> Iterator[Batch]:
        """Some thousand objects at a time."""
        found = beginning(head_of(source.path, HEAD_BYTES))
        if found is None:
            source.ledger.note(source.number, "there are no objects with keys: not read")
            return
        plan = tables.plan(found.names, found.sample, source.mapping, source.path)
        tables.note(plan, source)
        intake = Intake(source)
        by_lines = is_lines(source)
        with opened(source) as file:
            yield from _read(lines(file, intake) if by_lines else _objects(file, intake), plan, source)


def _read(values: Iterator[Any], plan: tables.Plan, source: Source) -> Iterator[Batch]:
    first = 0
    rows: list[_Row] = []
    for value in _each(values):
        if not isinstance(value, dict):
            source.ledger.note(source.number, "the record is no object", record=first + len(rows))
            continue
        rows.append(flat(value))
        if len(rows) >= BATCH_ROWS_MAX:
            yield from tables.rows(plan, _batch(rows, plan.theirs), first, source)
            first, rows = first + len(rows), []
    if rows:
        yield from tables.rows(plan, _batch(rows, plan.theirs), first, source)


def _each(values: Iterator[Any]) -> Iterator[Any]:
    """An array in a line stands for its elements."""
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _batch(rows: Sequence[_Row], names: Sequence[str]) -> pa.RecordBatch:
    columns = [pa.array([row.get(name) for row in rows], pa.string()) for name in names]
    return pa.RecordBatch.from_arrays(columns, list(names))


def _objects(file: BinaryIO, intake: Intake) -> Iterator[Any]:
    try:
        for element in elements(file, _is_outermost_array, _STREAM_DEPTH):
            if element.text is None:
                if not element.is_end:
                    intake.drop("the record is too long")
            elif (value := intake.parse(element.text)) is not None:
                yield value
    except Malformed as error:
        intake.drop(CUT, str(error))


def _is_outermost_array(path: JsonPath, is_array: bool) -> bool:
    return is_array and not path


def flat(value: Mapping[str, Any], before: str = "", depth: int = 0) -> _Row:
    """Its members as texts, those of objects inside under both keys."""
    found: _Row = {}
    for key, member in value.items():
        name = f"{before}{key}"
        if isinstance(member, dict):
            found |= flat(member, f"{name}.", depth + 1) if depth < _DEPTH_MAX else {}
        elif isinstance(member, bool):
            found[name] = "true" if member else "false"
        elif isinstance(member, str | int | float):
            found[name] = str(member)
    return found


def beginning(head: bytes) -> Beginning | None:
    """Of a file that begins so; none if its objects have no keys."""
    if head.lstrip()[:1] not in (b"{", b"["):
        return None
    rows = [flat(row) for row in _first(head)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if len(names) < _KEYS_MIN:
        return None
    return Beginning(names, {name: [row.get(name) or None for row in rows] for name in names}, "")


def _first(head: bytes) -> list[Mapping[str, Any]]:
    """The objects that are whole in it."""
    found: list[Mapping[str, Any]] = []
    try:
        for element in elements(io.BytesIO(head), _is_outermost_array, _STREAM_DEPTH):
            value = fields.json_of(element.text or b"")
            if isinstance(value, dict):
                found.append(value)
            if len(found) >= _SAMPLED:
                break
    except Malformed:
        pass
    return found
