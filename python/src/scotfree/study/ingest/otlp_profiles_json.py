"""The JSON encoding of OTLP profiles: one object per line, or one object in the whole file."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Any, Final

import orjson

from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.otlp_profiles import ATTRIBUTES_MAX, Dictionary, Message, Sample
from scotfree.study.ingest.reader import Source
from scotfree.study.ingest.symbols import LINES_MAX, Tables, TooLarge, ValueType
from scotfree.study.ingest.wire import Damaged

# An object takes some ten times its text in memory.
TEXT_BYTES_MAX: Final = 64 << 20
_KEYS: Final = (b'"resourceProfiles"', b'"stackTable"', b'"locationTable"', b'"functionTable"', b'"mappingTable"')


class JsonDecoder:
    """See the module."""

    form = "otlp-profiles-json"

    def recognises(self, head: bytes) -> bool:
        """By a key that only profiles have."""
        return head.lstrip().startswith(b"{") and any(key in head for key in _KEYS)

    def messages(self, source: Source) -> Iterator[Message]:
        """The messages of a file. A line that is no object ends only itself."""
        for text in _texts(source):
            try:
                yield _Message(_object(orjson.loads(text)))
            except (ValueError, Damaged) as error:
                source.ledger.note(source.number, "not an OTLP profiles object", detail=str(error)[:200])


def _texts(source: Source) -> Iterator[bytes]:
    """Lines, or the whole text where its first line is no whole object."""
    with opened(source) as stream:
        first = stream.readline(TEXT_BYTES_MAX + 1)
        if not _is_json(first):
            yield _checked(first + stream.read(TEXT_BYTES_MAX + 1))
            return
        yield first
        while line := stream.readline(TEXT_BYTES_MAX + 1):
            if line.strip():
                yield _checked(line)


def _checked(text: bytes) -> bytes:
    if len(text) > TEXT_BYTES_MAX:
        raise TooLarge(f"an object of more than {TEXT_BYTES_MAX} bytes")
    return text


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except ValueError:
        return False
    return True


class _Message:
    def __init__(self, message: dict[str, Any]) -> None:
        self._message = message
        self.dictionary = _dictionary(_object(message.get("dictionary", {})))

    def profiles(self) -> Iterator[_Profile]:
        for resource in _objects(self._message, "resourceProfiles"):
            attributes = _attributes(_object(resource.get("resource", {})))
            for scope in _objects(resource, "scopeProfiles"):
                for profile in _objects(scope, "profiles"):
                    yield _Profile(profile, attributes, self.dictionary.tables)


class _Profile:
    def __init__(self, profile: dict[str, Any], resource: dict[str, str], tables: Tables) -> None:
        self._profile = profile
        self.resource = resource
        self.sample_type = _value_type(profile, "sampleType", tables)
        self.period_type = _value_type(profile, "periodType", tables)
        self.period = _number(profile, "period")
        self.ts_ns = _number(profile, "timeUnixNano") or None

    def samples(self) -> Iterator[Sample]:
        return map(_sample, _objects(self._profile, "samples"))


def _sample(sample: dict[str, Any]) -> Sample:
    values = [_int(value) for value in _list(sample, "values")]
    weight = sum(values) if values else len(_list(sample, "timestampsUnixNano"))
    return Sample(_number(sample, "stackIndex"), _indices(sample, "attributeIndices"), float(weight))


def _dictionary(message: dict[str, Any]) -> Dictionary:
    found = Dictionary()
    tables = found.tables
    tables.strings += [value if isinstance(value, str) else "" for value in _list(message, "stringTable")]
    tables.modules |= _numbered(message, "mappingTable", "filenameStrindex")
    names = _numbered(message, "functionTable", "nameStrindex")
    mangled = _numbered(message, "functionTable", "systemNameStrindex")
    tables.functions |= {index: name or mangled[index] for index, name in names.items()}
    found.stacks += [partial(_indices, stack, "locationIndices") for stack in _objects(message, "stackTable")]
    found.attributes += [_keyed(each, tables) for each in _objects(message, "attributeTable")]
    for index, location in enumerate(_objects(message, "locationTable")):
        lines = tuple(_number(line, "functionIndex") for line in islice(_objects(location, "lines"), LINES_MAX))
        tables.locations[index] = (_number(location, "mappingIndex"), lines)
        found.mark_kernel(index, found.attributes_of(_indices(location, "attributeIndices")))
    tables.check(len(found.stacks) + len(found.attributes))
    return found


def _numbered(message: dict[str, Any], table: str, key: str) -> dict[int, int]:
    return {index: _number(entry, key) for index, entry in enumerate(_objects(message, table))}


def _keyed(attribute: dict[str, Any], tables: Tables) -> tuple[str, str]:
    return tables.string(_number(attribute, "keyStrindex")), _text(attribute)


def _value_type(profile: dict[str, Any], key: str, tables: Tables) -> ValueType:
    found = _object(profile.get(key, {}))
    kind, unit = _number(found, "typeStrindex"), _number(found, "unitStrindex")
    return ValueType(tables.string(kind), tables.string(unit))


def _attributes(holder: dict[str, Any]) -> dict[str, str]:
    """The attributes that are texts."""
    pairs = islice(_objects(holder, "attributes"), ATTRIBUTES_MAX)
    return {str(pair.get("key", "")): _text(pair) for pair in pairs}


def _text(pair: dict[str, Any]) -> str:
    value = _object(pair.get("value", {})).get("stringValue", "")
    return value if isinstance(value, str) else ""


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Damaged(f"{str(value)[:40]!r} where an object belongs")
    return value


def _list(holder: dict[str, Any], key: str) -> list[Any]:
    value = holder.get(key, [])
    if not isinstance(value, list):
        raise Damaged(f"{key} is no list")
    return value


def _objects(holder: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    return map(_object, _list(holder, key))


def _indices(holder: dict[str, Any], key: str) -> list[int]:
    return [_int(value) for value in _list(holder, key)]


def _number(holder: dict[str, Any], key: str) -> int:
    return _int(holder.get(key, 0))


def _int(value: Any) -> int:
    """An integer, or its digits as the encoding writes 64 bits."""
    if isinstance(value, str) and len(value) < 21 and value.removeprefix("-").isdecimal() and value.isascii():
        value = int(value)
    if not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise Damaged(f"{str(value)[:40]!r} is no integer of 64 bits")
    return value
