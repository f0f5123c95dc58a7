"""pprof: a gzipped message with samples, and the tables of places, functions and strings that they point into.

Field numbers are those of the format's profile.proto. Tables may stand behind the samples, so a file is walked
twice; it is held whole, up to a bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Final

from scotfree.study.ingest import symbols
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.stacks import STACK_FRAMES_MAX, Origin, Stacks
from scotfree.study.ingest.symbols import LINES_MAX, Measure, Tables, TooLarge, ValueType
from scotfree.study.ingest.wire import BYTES, VARINT, Damaged, fields, numbers, signed

_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRINGS = 1, 2, 3, 4, 5, 6
_TIME_NS, _PERIOD_TYPE, _PERIOD = 9, 11, 12
# The wire types of the fields: tables and samples; numbers; comments, which are either.
_KINDS: Final[dict[int, tuple[int, ...]]] = {
    **dict.fromkeys((1, 2, 3, 4, 5, 6, 11), (BYTES,)),
    **dict.fromkeys((7, 8, 9, 10, 12, 14, 15), (VARINT,)),
    13: (BYTES, VARINT),
}
_VALUES_MAX: Final = 64
_LABELS_MAX: Final = 256


class Pprof:
    """See the module."""

    form = "pprof"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its fields: their numbers and types, and a type of samples, which is two small numbers."""
        return _is_pprof(memoryview(head))

    def read(self, source: Source) -> Iterator[Batch]:
        """A row per distinct stack, of the processor time if there is one."""
        stacks = Stacks(source)
        try:
            profile = whole(source)
            header = _header(profile)
            for record, sample in enumerate(_samples(profile)):
                _add(sample, record, header, stacks)
                if stacks.is_full():
                    yield stacks.take()
        except (Damaged, TooLarge) as error:
            symbols.refuse(source, error)
        yield stacks.take()


def whole(source: Source) -> memoryview:
    """All bytes of an input, up to the bound."""
    with opened(source) as stream:
        data = stream.read(symbols.BYTES_MAX + 1)
    if len(data) > symbols.BYTES_MAX:
        raise TooLarge(f"more than {symbols.BYTES_MAX} bytes")
    return memoryview(data)


def starts_with_value_type(message: memoryview) -> bool:
    """Whether the first field is one of number 1 with nothing but the two indices of a type of values."""
    try:
        number, kind, _, inner = next(fields(message))
    except (Damaged, StopIteration):
        return False
    return (number, kind) == (1, BYTES) and _is_value_type(inner)


def _is_value_type(message: memoryview) -> bool:
    try:
        inside = list(islice(fields(message), 3))
    except Damaged:
        return False
    return 0 < len(inside) <= 2 and all(number in (1, 2) and kind == VARINT for number, kind, _, _ in inside)


def _is_pprof(head: memoryview) -> bool:
    is_typed = False
    try:
        for number, kind, _, inner in fields(head):
            if kind not in _KINDS.get(number, ()) or (number == _SAMPLE_TYPE and not _is_value_type(inner)):
                return False
            is_typed = is_typed or number == _SAMPLE_TYPE
    except Damaged:
        # The beginning of a file ends somewhere.
        pass
    return is_typed


@dataclass
class _Header:
    tables: Tables = field(default_factory=Tables)
    measure: Measure = field(default_factory=lambda: Measure(0, "unknown", 1.0))
    ts_ns: int | None = None
    # The program's own file stands first among the mappings.
    program: str | None = None


def _header(profile: memoryview) -> _Header:
    """Everything but the samples."""
    header = _Header()
    tables = header.tables
    types: list[memoryview] = []
    period_type, period = memoryview(b""), 0
    for number, _, value, inner in fields(profile):
        if number == _STRINGS:
            tables.strings.append(bytes(inner).decode("utf-8", "replace"))
        elif number == _SAMPLE_TYPE and len(types) < _VALUES_MAX:
            types.append(inner)
        elif number == _MAPPING:
            _take_mapping(inner, tables)
        elif number == _LOCATION:
            _take_location(inner, tables)
        elif number == _FUNCTION:
            _take_function(inner, tables)
        elif number == _TIME_NS:
            header.ts_ns = signed(value) or None
        elif number == _PERIOD_TYPE:
            period_type = inner
        elif number == _PERIOD:
            period = signed(value)
        tables.check()
    named = [_value_type(each, tables) for each in types]
    header.measure = symbols.measure(named, _value_type(period_type, tables), period)
    header.program = _program(tables)
    return header


def _program(tables: Tables) -> str | None:
    first = next(iter(tables.modules.values()), 0)
    return PurePosixPath(tables.string(first)).name or None


def _value_type(message: memoryview, tables: Tables) -> ValueType:
    found = _varints(message)
    return ValueType(tables.string(found.get(1, 0)), tables.string(found.get(2, 0)))


def _take_mapping(message: memoryview, tables: Tables) -> None:
    found = _varints(message)
    tables.modules[found.get(1, 0)] = found.get(5, 0)


def _take_function(message: memoryview, tables: Tables) -> None:
    found = _varints(message)
    tables.functions[found.get(1, 0)] = found.get(2, 0) or found.get(3, 0)


def _take_location(message: memoryview, tables: Tables) -> None:
    found = _varints(message)
    lines = islice(
        (inner for number, kind, _, inner in fields(message) if (number, kind) == (4, BYTES)), LINES_MAX
    )
    tables.locations[found.get(1, 0)] = (found.get(2, 0), tuple(_varints(line).get(1, 0) for line in lines))


def _varints(message: memoryview) -> dict[int, int]:
    """The numbers of a small message by field."""
    return {number: value for number, kind, value, _ in fields(message) if kind == VARINT}


def _samples(profile: memoryview) -> Iterator[memoryview]:
    return (inner for number, kind, _, inner in fields(profile) if (number, kind) == (_SAMPLE, BYTES))


def _add(sample: memoryview, record: int, header: _Header, stacks: Stacks) -> None:
    places: list[int] = []
    values: list[int] = []
    labels: dict[str, str] = {}
    for number, kind, value, inner in fields(sample):
        if number == 1:
            places += islice(numbers(kind, value, inner), STACK_FRAMES_MAX + 1 - len(places))
        elif number == 2:
            values += islice(numbers(kind, value, inner), _VALUES_MAX - len(values))
        elif number == 3 and len(labels) < _LABELS_MAX:
            label = _varints(inner)
            labels[header.tables.string(label.get(1, 0))] = header.tables.string(label.get(2, 0))
    index = header.measure.index
    weight = signed(values[index]) * header.measure.factor if index < len(values) else 0.0
    service = symbols.service_of(labels) or header.program
    origin = Origin(service, symbols.machine_of(labels), header.ts_ns, header.measure.unit)
    stacks.add(origin, header.tables.stack(places), weight, record)
