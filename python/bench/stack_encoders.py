"""Encoders of stacks, for tests and measurements: the same samples as pprof and as OTLP profiles."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.profiles.v1development import profiles_pb2


@dataclass(frozen=True)
class Sample:
    """A stack from the root, with its files; the weight in nanoseconds."""

    service: str
    stack: tuple[str, ...]
    modules: tuple[str | None, ...]
    weight: int


@dataclass
class Index:
    """Entries numbered in the order in which they come; the first is the empty one."""

    entries: dict[Any, int] = field(default_factory=dict)

    def of(self, entry: Any) -> int:
        """The number of an entry."""
        return self.entries.setdefault(entry, len(self.entries))


def varint(value: int) -> bytes:
    """A number of the wire format."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(tag: int, value: int) -> bytes:
    """A field that is a number."""
    return varint(tag << 3) + varint(value & (2**64 - 1))


def inside(tag: int, content: bytes) -> bytes:
    """A field with bytes in it: a text, a message."""
    return varint(tag << 3 | 2) + varint(len(content)) + content


def pprof(samples: Sequence[Sample], *, types: Sequence[tuple[str, str]] = (("cpu", "nanoseconds"),)) -> bytes:
    """A profile of the published message's fields; values of all types are the weight. Tables stand behind it."""
    texts, functions, files = Index(), Index(), Index()
    places = Index()
    texts.of("")
    out = b"".join(inside(1, number(1, texts.of(kind)) + number(2, texts.of(unit))) for kind, unit in types)
    for sample in samples:
        frames = zip(sample.stack, sample.modules, strict=True)
        ids = [
            places.of((functions.of(name) + 1, files.of(module) + 1 if module else 0)) + 1
            for name, module in frames
        ]
        label = number(1, texts.of("service")) + number(2, texts.of(sample.service))
        body = inside(1, b"".join(map(varint, reversed(ids))))
        body += inside(2, b"".join(varint(sample.weight) for _ in types)) + inside(3, label)
        out += inside(2, body)
    for name, index in files.entries.items():
        out += inside(3, number(1, index + 1) + number(5, texts.of(name)))
    for (function, module), index in places.entries.items():
        out += inside(4, number(1, index + 1) + number(2, module) + inside(4, number(1, function)))
    for name, index in functions.entries.items():
        out += inside(5, number(1, index + 1) + number(2, texts.of(name)))
    return gzip.compress(out + b"".join(inside(6, text.encode()) for text in texts.entries))


def otlp(samples: Iterable[Sample]) -> profiles_pb2.ProfilesData:
    """The message by the published package, one resource per service."""
    data = profiles_pb2.ProfilesData()
    texts, functions, files, places, stacks = Index(), Index(), Index(), Index(), Index()
    for index, first in ((texts, ""), (functions, ""), (files, None), (places, None), (stacks, ())):
        index.of(first)
    kind = profiles_pb2.ValueType(type_strindex=texts.of("cpu"), unit_strindex=texts.of("nanoseconds"))
    profiles: dict[str, profiles_pb2.Profile] = {}
    for sample in samples:
        if sample.service not in profiles:
            resource = data.resource_profiles.add()
            resource.resource.attributes.add(key="service.name").value.string_value = sample.service
            profiles[sample.service] = resource.scope_profiles.add().profiles.add(sample_type=kind)
        frames = zip(sample.stack, sample.modules, strict=True)
        ids = tuple(places.of((functions.of(name), files.of(module))) for name, module in frames)
        profiles[sample.service].samples.add(stack_index=stacks.of(ids), values=[sample.weight])
    _tables(data.dictionary, texts, functions, files, places, stacks)
    return data


def _tables(into: Any, texts: Index, functions: Index, files: Index, places: Index, stacks: Index) -> None:
    for name in files.entries:
        into.mapping_table.add(filename_strindex=texts.of(name or ""))
    for name in functions.entries:
        into.function_table.add(name_strindex=texts.of(name))
    for place in places.entries:
        added = into.location_table.add(mapping_index=place[1] if place else 0)
        if place:
            added.lines.add(function_index=place[0])
    for ids in stacks.entries:
        into.stack_table.add(location_indices=list(reversed(ids)))
    into.string_table.extend(texts.entries)


def otlp_json(samples: Iterable[Sample]) -> bytes:
    """The same as one line of JSON."""
    return str(MessageToJson(otlp(samples), indent=None)).encode() + b"\n"
