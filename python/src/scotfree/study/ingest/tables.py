"""Tables of any shape as rows of a relation: records of sides, whole calls, series, or stacks.

A table of calls (`total_ns` or stages, `method`) becomes the clients' records of them, with all that they say;
a call without a total is known from its server only. Stages that are given are taken as measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest import convert, usual
from scotfree.study.ingest.columns import table_of
from scotfree.study.ingest.convert import Convert, WrongType
from scotfree.study.ingest.mapping import RELATIONS, UNITS, Column, ColumnMap, nearest
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.spellings import END
from scotfree.study.schema import Kind
from scotfree.study.trouble import StudyError

_SIDE_NEEDED: Final = ("trace_id", "span_id", "start_ns", "duration_ns")
_CALL_NEEDED: Final = ("trace_id", "span_id", "start_ns", "method")
_NEEDED: Final = {
    "side": _SIDE_NEEDED,
    "span": _CALL_NEEDED,
    "metric": ("series", "ts_ns", "value"),
    "profile": ("stack", "weight"),
}
_TIMES: Final = ("start_ns", "duration_ns", "total_ns", END)
_COMMA: Final = re.compile(r"\s*([0-9]+),([0-9]+)\s*")
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


@dataclass(frozen=True)
class Plan:
    """What a table's rows are, and which column of theirs is which of ours."""

    relation: str
    columns: Mapping[str, Column]
    notes: Sequence[str] = ()

    @property
    def theirs(self) -> list[str]:
        """The columns that are read."""
        return sorted({column.name for column in self.columns.values()})


def plan(theirs: Sequence[str], sample: usual.Sample, mapping: ColumnMap, path: Path) -> Plan:
    """By what the user says, by our names, and by usual ones. What is lacking is said with what may be it."""
    mapping.check(theirs)
    found = usual.guess(theirs, sample, mapping)
    relation = _relation(mapping, theirs)
    if relation is None and not found.lacking:
        relation = "side"
    if relation is None:
        raise _lacks(mapping, found, theirs, path)
    known, notes = (found.known, found.notes) if relation == "side" else (mapping, [])
    columns = _present(known, relation, theirs)
    notes = [*notes, *_fractions(columns, sample)]
    for name in _TIMES:
        if name in columns:
            _check_times(name, columns[name], sample, path)
    return Plan(relation, columns, notes)


def is_known(theirs: Sequence[str], sample: usual.Sample) -> bool:
    """Whether a table is one of ours without anything being said of it."""
    nothing = ColumnMap()
    return _relation(nothing, theirs) is not None or not usual.guess(theirs, sample, nothing).lacking


def rows(plan: Plan, batch: pa.RecordBatch, first: int, source: Source) -> Iterator[Batch]:
    """Rows of the table, of which that number is the first."""
    given = {name: _converted(name, column, batch, source.path) for name, column in plan.columns.items()}
    record = pa.array(range(first, first + batch.num_rows), pa.int64())
    yield from _rows(plan.relation, given, record, source)


def note(plan: Plan, source: Source) -> None:
    """What was taken for granted goes to the ledger."""
    for text in plan.notes:
        source.ledger.note(source.number, text, kept=True)


def _relation(columns: ColumnMap, theirs: Sequence[str]) -> str | None:
    """The relation whose needs the table meets by our names, of several that of which it has most."""
    met = [relation for relation in _NEEDED if not _lacking(columns, relation, theirs)]
    return max(met, key=lambda of: len(_present(columns, of, theirs)), default=None)


def _lacking(columns: ColumnMap, relation: str, theirs: Sequence[str]) -> list[str]:
    lacking = [name for name in _NEEDED[relation] if columns.of(name).name not in theirs]
    return [] if relation == "side" and lacking == ["duration_ns"] and columns.of(END).name in theirs else lacking


def _lacks(mapping: ColumnMap, found: usual.Guess, theirs: Sequence[str], path: Path) -> StudyError:
    """For the relation of which the table has most."""
    of_spans = len([name for name in usual.WANTED if found.has(name)])
    counts = {of: len(_present(mapping, of, theirs)) for of in RELATIONS} | {"side": of_spans}
    relation = max(counts, key=lambda of: counts[of])
    name = found.lacking[0] if relation == "side" else _lacking(mapping, relation, theirs)[0]
    flags = found.flags() if relation == "side" else ""
    return StudyError(
        f"read {path}: it has no column {name} (as a table of {relation} must)",
        f"say which it is, perhaps: {flags}"
        if name in found.likely and flags
        else f"say which it is: --map {name}=THEIRS; {nearest(name, theirs)}",
    )


def _check_times(name: str, column: Column, sample: usual.Sample, path: Path) -> None:
    """That texts which should be times are some; where only some are not, the ledger says which."""
    texts = [value for value in sample.get(column.name, ()) if isinstance(value, str)]
    if not texts or convert.nanoseconds(pa.array(texts, pa.string()), 1).null_count < len(texts):
        return
    comma = _COMMA.match(texts[0])
    raise StudyError(
        f"read {name} from the column {column.name} of {path}: {texts[0][:40]!r} is no time",
        f"its comma is read as no decimal point: write {comma[1]}.{comma[2]}"
        if comma
        else f"name another with --map {name}=THEIRS, or leave it out",
    )


def _fractions(columns: Mapping[str, Column], sample: usual.Sample) -> list[str]:
    """Of times in ns that have fractions: nobody measures these, so another unit is meant."""
    found = {name: columns[name] for name in _TIMES if name in columns and columns[name].unit == "ns"}
    return [
        f"{column.name} is read in ns and has fractions: is it in {unit}? then say {name}={column.name}:{unit}"
        for name, column in found.items()
        if (unit := usual.unit_of_fractions(name, column.name, sample))
    ]


def _present(columns: ColumnMap, relation: str, theirs: Sequence[str]) -> dict[str, Column]:
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
    "status": convert.statuses,
    # A measured value may be negative.
    "value": convert.measures,
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
