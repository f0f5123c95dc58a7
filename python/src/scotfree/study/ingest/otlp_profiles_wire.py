"""The protobuf encoding of OTLP profiles: one message, or many behind a length of four bytes each.

Field numbers are those of opentelemetry/proto/profiles/v1development/profiles.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from scotfree.study.ingest.fields import INT64_MAX
from scotfree.study.ingest.otlp_profiles import ATTRIBUTES_MAX, Dictionary, Message, Sample
from scotfree.study.ingest.pprof import starts_with_value_type, whole
from scotfree.study.ingest.reader import Source
from scotfree.study.ingest.symbols import LINES_MAX, Tables, ValueType
from scotfree.study.ingest.wire import BYTES, VARINT, Damaged, fields, first_inside, numbers, signed

_RESOURCE_PROFILES, _DICTIONARY = 1, 2
_MAPPINGS, _LOCATIONS, _FUNCTIONS, _STRINGS, _ATTRIBUTES, _STACKS = 1, 2, 3, 5, 6, 7
_SAMPLES: Final = 2
_LENGTH_BYTES: Final = 4
_ABSENT: Final = (0, memoryview(b""))


class WireDecoder:
    """See the module."""

    form = "otlp-profiles"

    def recognises(self, head: bytes) -> bool:
        """By what is inside its first profile: a span or a metric begins otherwise."""
        view = memoryview(head)
        return any(_is_profiles(start) for start in (view, view[_LENGTH_BYTES:]))

    def messages(self, source: Source) -> Iterator[Message]:
        """The messages of a file."""
        data = whole(source)
        if len(data) == 0 or data[0] in (0x0A, 0x12):
            yield _Message(data)
            return
        at = 0
        while at < len(data):
            end = at + _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            if end > len(data):
                raise Damaged("the last message lacks its end")
            yield _Message(data[at + _LENGTH_BYTES : end])
            at = end


def _is_profiles(message: memoryview) -> bool:
    """Looks into resource, scope and profile, as far as the beginning of a file goes."""
    for number in (_RESOURCE_PROFILES, 2, 2):
        message = first_inside(message, number)
    return starts_with_value_type(message)


class _Message:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.dictionary = Dictionary()
        for number, kind, _, inner in fields(data):
            if (number, kind) == (_DICTIONARY, BYTES):
                _take_dictionary(inner, self.dictionary)

    def profiles(self) -> Iterator[_Profile]:
        for resource in _inner(self._data, _RESOURCE_PROFILES):
            attributes = _resource(resource)
            for scope in _inner(resource, 2):
                for profile in _inner(scope, 2):
                    yield _Profile(profile, attributes, self.dictionary.tables)


class _Profile:
    def __init__(self, data: memoryview, resource: dict[str, str], tables: Tables) -> None:
        found = {number: (value, inner) for number, _, value, inner in fields(data) if number != _SAMPLES}
        self._data = data
        self.resource = resource
        self.sample_type = _value_type(found.get(1, _ABSENT)[1], tables)
        self.period_type = _value_type(found.get(5, _ABSENT)[1], tables)
        self.period = signed(found.get(6, _ABSENT)[0])
        self.ts_ns = found.get(3, _ABSENT)[0] & INT64_MAX or None

    def samples(self) -> Iterator[Sample]:
        return map(_sample, _inner(self._data, _SAMPLES))


def _inner(message: memoryview, wanted: int) -> Iterator[memoryview]:
    return (inner for number, kind, _, inner in fields(message) if (number, kind) == (wanted, BYTES))


def _sample(message: memoryview) -> Sample:
    stack, attributes, moments = 0, list[int](), 0
    total: int | None = None
    for number, kind, value, inner in fields(message):
        if number == 1:
            stack = value
        elif number == 2:
            attributes += islice(numbers(kind, value, inner), ATTRIBUTES_MAX - len(attributes))
        elif number == 4:
            total = (total or 0) + sum(map(signed, numbers(kind, value, inner)))
        elif number == 5:
            moments += len(inner) // 8 if kind == BYTES else 1
    return Sample(stack, attributes, float(moments if total is None else total))


def _take_dictionary(message: memoryview, into: Dictionary) -> None:
    tables = into.tables
    locations: list[memoryview] = []
    attributes: list[memoryview] = []
    for number, kind, _, inner in fields(message):
        if kind != BYTES:
            continue
        if number == _STRINGS:
            tables.strings.append(bytes(inner).decode("utf-8", "replace"))
        elif number == _MAPPINGS:
            tables.modules[len(tables.modules)] = _varints(inner).get(4, 0)
        elif number == _FUNCTIONS:
            found = _varints(inner)
            tables.functions[len(tables.functions)] = found.get(1, 0) or found.get(2, 0)
        elif number == _LOCATIONS:
            locations.append(inner)
        elif number == _ATTRIBUTES:
            attributes.append(inner)
        elif number == _STACKS:
            into.stacks.append(partial(_places, inner))
        tables.check(len(locations) + len(attributes) + len(into.stacks))
    into.attributes = [_attribute(each, tables) for each in attributes]
    for index, location in enumerate(locations):
        _take_location(index, location, into)


def _take_location(index: int, message: memoryview, into: Dictionary) -> None:
    found = _varints(message)
    functions = tuple(_varints(line).get(1, 0) for line in islice(_inner(message, 3), LINES_MAX))
    into.tables.locations[index] = (found.get(1, 0), functions)
    into.mark_kernel(index, into.attributes_of(_indices(message, 4)))


def _places(stack: memoryview) -> Iterable[int]:
    return _indices(stack, 1)


def _indices(message: memoryview, wanted: int) -> Iterator[int]:
    for number, kind, value, inner in fields(message):
        if number == wanted:
            yield from numbers(kind, value, inner)


def _value_type(message: memoryview, tables: Tables) -> ValueType:
    found = _varints(message)
    return ValueType(tables.string(found.get(1, 0)), tables.string(found.get(2, 0)))


def _varints(message: memoryview) -> dict[int, int]:
    return {number: value for number, kind, value, _ in fields(message) if kind == VARINT}


def _attribute(message: memoryview, tables: Tables) -> tuple[str, str]:
    key = tables.string(_varints(message).get(1, 0))
    return key, _text(next(_inner(message, 2), memoryview(b"")))


def _resource(message: memoryview) -> dict[str, str]:
    """The attributes of resource that are texts."""
    resource = next(_inner(message, 1), memoryview(b""))
    pairs = islice(_inner(resource, 1), ATTRIBUTES_MAX)
    return {_string(pair, 1): _text(next(_inner(pair, 2), memoryview(b""))) for pair in pairs}


def _text(any_value: memoryview) -> str:
    """What an AnyValue holds, if it is a text."""
    return _string(any_value, 1)


def _string(message: memoryview, wanted: int) -> str:
    return bytes(next(_inner(message, wanted), memoryview(b""))).decode("utf-8", "replace")
