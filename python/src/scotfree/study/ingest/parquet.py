"""Parquet of any shape, by a mapping of columns: records of sides, whole calls, series, or stacks.

A table of calls (`total_ns` or stages, `method`) becomes the clients' records of them, with all that they say;
a call without a total is known from its server only. Stages that are given are taken as measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.ingest import convert
from scotfree.study.ingest.columns import table_of
from scotfree.study.ingest.convert import Convert, WrongType
from scotfree.study.ingest.mapping import END, RELATIONS, UNITS, Column, ColumnMap, nearest
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source
from scotfree.study.schema import Kind
from scotfree.study.trouble import StudyError

_MAGIC: Final = b"PAR1"
_SIDE_NEEDED: Final = ("trace_id", "span_id", "start_ns", "duration_ns")
_CALL_NEEDED: Final = ("trace_id", "span_id", "start_ns", "method")
_NEEDED: Final = {
    "side": _SIDE_NEEDED,
    "span": _CALL_NEEDED,
    "metric": ("series", "ts_ns", "value"),
    "profile": ("stack", "weight"),
}
# Of a call -> of its client's record, and of its server's.
_OF_CLIENT: Final = {
    "total_ns": "duration_ns",
    "method": "name",
    "service": "peer_service",
    "client_service": "service",
    "server_cluster": "peer_cluster",
    "client_cluster": "cluster",
    "server_machine": "peer_machine",
    "client_machine": "machine",
}
_OF_SERVER: Final = {
    "server_app_ns": "duration_ns",
    "method": "name",
    "service": "service",
    "client_service": "peer_service",
    "server_cluster": "cluster",
    "client_cluster": "peer_cluster",
    "server_machine": "machine",
    "client_machine": "peer_machine",
}

# Our columns by name.
_Columns = dict[str, pa.Array]


class Parquet:
    """See the module."""

    form = "parquet"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first bytes."""
        return head.startswith(_MAGIC)

    def read(self, source: Source) -> Iterator[Batch]:
        """Row group by row group."""
        try:
            with pq.ParquetFile(source.path) as file:
                yield from _read(file, source)
        except (pa.ArrowException, OSError) as error:
            source.ledger.note(
                source.number, "the file is damaged; nothing more was read", detail=str(error)[:200]
            )


def _read(file: pq.ParquetFile, source: Source) -> Iterator[Batch]:
    theirs, columns = file.schema_arrow.names, source.mapping
    columns.check(theirs)
    relation = _relation(columns, theirs, source.path)
    ours = _present(columns, relation, theirs)
    names = sorted({column.name for column in ours.values()})
    first, size = 0, source.path.stat().st_size
    for batch in file.iter_batches(BATCH_ROWS_MAX, columns=names):
        given = {name: _converted(name, column, batch, source.path) for name, column in ours.items()}
        record = pa.array(range(first, first + batch.num_rows), pa.int64())
        yield from _rows(relation, given, record, source)
        first += batch.num_rows
        source.progress(size * first // file.metadata.num_rows)


def _relation(columns: ColumnMap, theirs: list[str], path: Path) -> str:
    """What the table's rows are: the relation whose columns it has."""
    lacking = {
        relation: [name for name in needed if columns.of(name).name not in theirs]
        for relation, needed in _NEEDED.items()
    }
    if lacking["side"] == ["duration_ns"] and columns.of(END).name in theirs:
        return "side"
    # One whose needs are met, or the one of which the table has most.
    relation = min(lacking, key=lambda of: (bool(lacking[of]), -len(_present(columns, of, theirs))))
    if lacking[relation]:
        name = lacking[relation][0]
        raise StudyError(
            f"read {path}: it has no column {name} (as a table of {relation} must)",
            f"say which it is: --map {name}=THEIRS; {nearest(name, theirs)}",
        )
    return relation


def _present(columns: ColumnMap, relation: str, theirs: list[str]) -> dict[str, Column]:
    """Our columns that the table has."""
    ours = [name for name in (*RELATIONS[relation].names, END) if name not in ("input", "record", "method_id")]
    return {name: columns.of(name) for name in ours if columns.of(name).name in theirs}


def _converted(name: str, column: Column, batch: pa.RecordBatch, path: Path) -> pa.Array:
    try:
        return _converter(name, column)(batch.column(column.name))
    except (WrongType, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise StudyError(
            f"read {name} from the column {column.name} of {path}: its type cannot be ({error})",
            f"name another with --map {name}=THEIRS, or leave it out",
        ) from None


def _converter(name: str, column: Column) -> Convert:
    """How a column of ours is made: by its name, its unit, or its type."""
    if name in _CONVERTERS:
        return _CONVERTERS[name]
    if name.endswith("_ns"):
        return lambda values: convert.nanoseconds(values, UNITS[column.unit])
    return next(of for fits, of in _BY_TYPE if fits(_type_of(name)))


def _type_of(name: str) -> pa.DataType:
    return next((of.field(name).type for of in RELATIONS.values() if name in of.names), pa.int64())


def _stacks(values: pa.Array) -> pa.Array:
    if not pa.types.is_list(values.type):
        raise WrongType(str(values.type))
    return values.cast(pa.list_(pa.string()))


_CONVERTERS: Final[dict[str, Convert]] = {
    "trace_id": convert.trace_ids,
    "span_id": convert.span_ids,
    "parent_id": convert.span_ids,
    "kind": convert.kinds,
    # A measured value may be negative.
    "value": lambda values: values.cast(pa.float64()),
    "stack": _stacks,
}
_BY_TYPE: Final[tuple[tuple[Callable[[pa.DataType], bool], Convert], ...]] = (
    (pa.types.is_integer, convert.counts),
    (pa.types.is_floating, convert.floats),
    (pa.types.is_boolean, convert.booleans),
    (lambda _: True, convert.texts),
)


def _rows(relation: str, given: _Columns, record: pa.Array, source: Source) -> Iterator[Batch]:
    if relation == "side":
        yield _sides(given, record, source)
    elif relation == "span":
        yield from _calls(given, record, source)
    else:
        yield _others(relation, given, record, source)


def _sides(given: _Columns, record: pa.Array, source: Source) -> Batch:
    if END in given and "duration_ns" not in given:
        took = pc.subtract(given[END], given["start_ns"])
        given["duration_ns"] = pc.if_else(pc.less(took, 0), pa.scalar(None, pa.int64()), took)
    fit = _fit(given, _SIDE_NEEDED, record, source)
    rows = pa.record_batch({**given, "record": record}).filter(fit)
    columns = {name: rows[name] for name in rows.schema.names if name != END}
    for name, value in _defaults(rows, source).items():
        columns[name] = value
    return Batch("side", table_of(schema.SIDE, columns, rows.num_rows), rows.num_rows)


def _defaults(rows: pa.RecordBatch, source: Source) -> dict[str, pa.Array]:
    """What a record must have and the table need not."""
    of = rows.schema.names
    service = rows["service"] if "service" in of else pa.nulls(rows.num_rows, pa.string())
    _note(source, "no service is named", rows["record"].filter(pc.is_null(service)), kept=True)
    values = {
        "service": "unknown",
        "name": "",
        "status": schema.STATUS_OK,
        "kind": int(Kind.UNKNOWN),
        "is_shared": False,
        "input": source.number,
    }
    return {
        name: pc.fill_null(rows[name], value) if name in of else pa.repeat(value, rows.num_rows)
        for name, value in values.items()
    }


def _calls(given: _Columns, record: pa.Array, source: Source) -> Iterator[Batch]:
    """Calls as their clients' records, and as their servers' where only those are known."""
    total = given.get("total_ns", pa.nulls(len(record), pa.int64()))
    for kind, names, which in (
        (Kind.CLIENT, _OF_CLIENT, pc.is_valid(total)),
        (Kind.SERVER, _OF_SERVER, pc.is_null(total)),
    ):
        rows = {name: values.filter(which) for name, values in given.items()}
        count = len(record.filter(which))
        columns = {names.get(name, name): values for name, values in rows.items()}
        columns |= {name: rows[name] for name in schema.STAGE_COLUMNS if name in rows}
        columns.setdefault("duration_ns", pa.nulls(count, pa.int64()))
        columns["kind"] = pa.repeat(pa.scalar(int(kind), pa.int8()), count)
        if count:
            yield _sides(columns, record.filter(which), source)


def _others(relation: str, given: _Columns, record: pa.Array, source: Source) -> Batch:
    of = RELATIONS[relation]
    fit = _fit(given, _NEEDED[relation], record, source)
    columns = {name: values.filter(fit) for name, values in given.items()}
    count = pc.sum(fit).as_py() or 0
    if "unit" in of.names:
        columns["unit"] = pc.fill_null(columns.get("unit", pa.nulls(count, pa.string())), "cpu")
    return Batch(relation, table_of(of, columns, count), count)


def _fit(given: _Columns, needed: tuple[str, ...], record: pa.Array, source: Source) -> pa.Array:
    """Which rows have what they need. Each of the others is noted under the first that it lacks."""
    fit = pa.repeat(True, len(record))
    for name in needed:
        lacks = pc.is_null(given[name])
        _note(source, f"{name} is missing or impossible", record.filter(pc.and_(fit, lacks)))
        fit = pc.and_(fit, pc.invert(lacks))
    return fit


def _note(source: Source, reason: str, records: pa.Array, *, kept: bool = False) -> None:
    if len(records):
        source.ledger.note(source.number, reason, record=records[0].as_py(), kept=kept, count=len(records))
