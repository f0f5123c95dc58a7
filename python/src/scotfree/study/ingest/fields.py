"""Fields of records in JSON, checked: what is not what it must be is an `Unfit` with the words for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from scotfree.study.schema import Kind

INT64_MAX: Final = 2**63 - 1
NS_PER_US: Final = 1000
KINDS: Final = {kind.name: int(kind) for kind in Kind}


class Unfit(Exception):
    """A record that cannot become a row; the text is the ledger's reason."""


def trace_id(record: Mapping[str, Any], key: str) -> bytes:
    """16 bytes; an id of 64 bits has zeros before it."""
    text = _hex(record, key, 32)
    if int(text, 16) == 0:
        raise Unfit(f"{key} is zero")
    return bytes.fromhex(text)


def span_id(record: Mapping[str, Any], key: str) -> int:
    """8 bytes as a signed number."""
    number = int(_hex(record, key, 16), 16)
    if number == 0:
        raise Unfit(f"{key} is zero")
    return number - 2**64 if number >= 2**63 else number


def ns_of_us(record: Mapping[str, Any], key: str) -> int:
    """Microseconds, a number or its digits, in nanoseconds."""
    value = record.get(key)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if value is None:
        raise Unfit(f"{key} is missing")
    # The comparison is false for NaN, too.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= INT64_MAX // NS_PER_US:
        raise Unfit(f"{key} is no time")
    return int(value * NS_PER_US)


def kind_of(value: Any) -> int:
    """The role by its name in any case; what has none is unknown."""
    return KINDS.get(value.upper(), int(Kind.UNKNOWN)) if isinstance(value, str) else int(Kind.UNKNOWN)


def text_of(value: Any) -> str | None:
    """A text that says something."""
    return value if isinstance(value, str) and value.strip() else None


def json_of(text: bytes) -> Any:
    """The value that a text holds; None if it holds none."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def mapping_of(value: Any) -> Mapping[str, Any]:
    """An object, or an empty one instead of anything else."""
    return value if isinstance(value, dict) else {}


def list_of(value: Any) -> list[Any]:
    """A list, or an empty one instead of anything else."""
    return value if isinstance(value, list) else []


def _hex(record: Mapping[str, Any], key: str, digits: int) -> str:
    text = record.get(key)
    if not isinstance(text, str) or not text:
        raise Unfit(f"{key} is missing")
    if len(text) > digits or not all(letter in "0123456789abcdefABCDEF" for letter in text):
        raise Unfit(f"{key} is not hexadecimal of {digits} digits")
    return text.zfill(digits)
