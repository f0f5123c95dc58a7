"""The thesis' three classes of messages (table 6.2), as objects whose fields a pipeline can walk.

Published are the size, the bytes read for each byte written, and the depth; of the fields only that Flat has no
sub-objects, that every field of Nested is one, and that Mixed is between. Which fields there are is our
reconstruction: numbers of eight bytes that take five in a message, and texts, as many as give the published
columns. How many sub-objects Mixed and Nested have follows from none of these: it is fitted (`published.FITTED`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# Of a schema's entry: a type and an address (4.1.3), each a word.
ENTRY_BYTES: Final = 16
NUMBER_BYTES: Final = 8
_NUMBER_WIRE: Final = 5
# Numbers up to that have a tag of one byte.
_SHORT_TAGS: Final = 15


@dataclass(frozen=True)
class Number:
    """A number, which lies in its object."""


@dataclass(frozen=True)
class Text:
    """A text, which lies elsewhere."""

    bytes: int


@dataclass(frozen=True)
class Object:
    """A message, or one within another."""

    fields: tuple[Number | Text | Object, ...]


def entries(message: Object) -> int:
    """Entries of its schema and of those below."""
    return sum(1 + (entries(field) if isinstance(field, Object) else 0) for field in message.fields)


def depth(message: Object) -> int:
    """Of a message without others in it, 1."""
    return 1 + max((depth(field) for field in message.fields if isinstance(field, Object)), default=0)


def wire_bytes(message: Object) -> int:
    """As Protobuf writes it."""
    return sum(of_fields(message))


def of_fields(message: Object) -> Iterator[int]:
    """Of each field by itself; of an object within it the tag and the length are in it."""
    for at, field in enumerate(message.fields, 1):
        yield (1 if at <= _SHORT_TAGS else 2) + _value_bytes(field)


def _value_bytes(field: Number | Text | Object) -> int:
    if isinstance(field, Number):
        return _NUMBER_WIRE
    # One byte says the length.
    return 1 + (field.bytes if isinstance(field, Text) else wire_bytes(field))


def read_bytes(message: Object) -> int:
    """What must be read to write it: its schemata, and its fields where they lie."""
    return ENTRY_BYTES * len(message.fields) + sum(_memory_bytes(field) for field in message.fields)


def _memory_bytes(field: Number | Text | Object) -> int:
    if isinstance(field, Object):
        return read_bytes(field)
    return field.bytes if isinstance(field, Text) else NUMBER_BYTES


def _object(numbers: int, texts: int = 0, text_bytes: int = 0, objects: tuple[Object, ...] = ()) -> Object:
    return Object((*[Number()] * numbers, *[Text(text_bytes)] * texts, *objects))


FLAT: Final = _object(36, 10, 22)
MIXED: Final = _object(12, 5, 18, (_object(3, 1, 18),) * 3)
NESTED: Final = _object(0, objects=(*[_object(5)] * 6, _object(6)))
CLASSES: Final = {"Flat": FLAT, "Mixed": MIXED, "Nested": NESTED}
