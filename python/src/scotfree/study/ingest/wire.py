"""Protocol Buffers on the wire: the fields of a message, one by one, without a schema.

Nothing is copied but what is asked for, nothing recurses: a message inside a message is a view of its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_VARINT_BYTES_MAX: Final = 10
_SIGN: Final = 1 << 63
_EMPTY: Final = memoryview(b"")

Field = tuple[int, int, int, memoryview]


class Damaged(Exception):
    """Bytes that are no such message."""


def fields(message: memoryview) -> Iterator[Field]:
    """(number, wire type, value, bytes): a number has its value, bytes have their view, the other is empty."""
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        number, kind = key >> 3, key & 7
        if number == 0:
            raise Damaged("a field of number 0")
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value, _EMPTY
        elif kind == BYTES:
            size, at = varint(message, at)
            if size > end - at:
                raise Damaged(f"field {number} of {size} bytes ends behind its message")
            yield number, kind, 0, message[at : at + size]
            at += size
        elif kind in (FIXED32, FIXED64):
            size = 4 if kind == FIXED32 else 8
            if size > end - at:
                raise Damaged(f"field {number} ends behind its message")
            yield number, kind, int.from_bytes(message[at : at + size], "little"), _EMPTY
            at += size
        else:
            raise Damaged(f"wire type {kind}")


def first_inside(message: memoryview, wanted: int) -> memoryview:
    """What the first such field has inside, as far as the bytes go: of a file only the beginning may be there."""
    at = 0
    try:
        while at < len(message):
            key, at = varint(message, at)
            size, at = varint(message, at)
            if key & 7 != BYTES:
                break
            if key >> 3 == wanted:
                return message[at : at + size]
            at += size
    except Damaged:
        pass
    return _EMPTY


def varint(data: memoryview, at: int) -> tuple[int, int]:
    """The unsigned number at a place, and the place behind it."""
    value = 0
    for index, byte in enumerate(data[at : at + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & (2 * _SIGN - 1), at + index + 1
    raise Damaged("a number without its end")


def signed(value: int) -> int:
    """An int64 or int32 as it is written."""
    return value - 2 * _SIGN if value >= _SIGN else value


def numbers(kind: int, value: int, packed: memoryview) -> Iterator[int]:
    """A repeated number's values in one field, packed or alone."""
    if kind != BYTES:
        yield value
        return
    at = 0
    while at < len(packed):
        value, at = varint(packed, at)
        yield value
