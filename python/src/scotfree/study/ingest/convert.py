"""Columns of any table as columns of ours: each value is right or null.

A column whose type cannot mean what it should is a `WrongType`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest import said
from scotfree.study.ingest.columns import SPAN_ID_BYTES, TRACE_ID_BYTES, hashed_ids
from scotfree.study.ingest.fields import INT64_MAX, KINDS

# SkyWalking's names beside OpenTelemetry's, and its numbers as texts.
_KINDS: Final = (
    KINDS
    | {f"SPAN_KIND_{name}": number for name, number in KINDS.items()}
    | {"ENTRY": int(schema.Kind.SERVER), "EXIT": int(schema.Kind.CLIENT), "LOCAL": int(schema.Kind.INTERNAL)}
    | {str(number): number for number in KINDS.values()}
)


class WrongType(Exception):
    """A column whose type cannot mean what it should; the text is that type."""


def trace_ids(values: pa.Array) -> pa.Array:
    """16 bytes, of bytes, hexadecimal digits, or other texts (then hashed)."""
    return _nonzero(_id_bytes(values, TRACE_ID_BYTES), TRACE_ID_BYTES)


def span_ids(values: pa.Array) -> pa.Array:
    """Numbers, of numbers, bytes, hexadecimal digits, or other texts (then hashed); 0 is none."""
    if pa.types.is_uint64(values.type):
        values = values.view(pa.int64())
    if pa.types.is_integer(values.type):
        numbers = values.cast(pa.int64())
    else:
        numbers = _numbers_of(_id_bytes(values, SPAN_ID_BYTES))
    return pc.if_else(pc.equal(numbers, 0), pa.scalar(None, pa.int64()), numbers)


def nanoseconds(values: pa.Array, unit_ns: int) -> pa.Array:
    """Times and durations, not negative."""
    if is_text(values.type):
        return said.nanoseconds(plain(values), unit_ns)
    if pa.types.is_timestamp(values.type) or pa.types.is_duration(values.type):
        unit_ns = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[values.type.unit]
        values = values.cast(pa.int64())
    return _scaled(values, unit_ns)


def counts(values: pa.Array) -> pa.Array:
    """Whole numbers, not negative."""
    if is_text(values.type):
        return said.counts(plain(values))
    return _scaled(values, 1)


def floats(values: pa.Array) -> pa.Array:
    """Numbers that are finite and not negative."""
    numbers = measures(values)
    return pc.if_else(pc.and_(pc.is_finite(numbers), pc.greater_equal(numbers, 0.0)), numbers, _null(pa.float64()))


def measures(values: pa.Array) -> pa.Array:
    """Numbers of any size and sign."""
    return said.floats(plain(values)) if is_text(values.type) else _number(values).cast(pa.float64())


def texts(values: pa.Array) -> pa.Array:
    """Texts that say something."""
    values = plain(values)
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise WrongType(str(values.type))
    found = values.cast(pa.string())
    return pc.if_else(pc.equal(pc.utf8_trim_whitespace(found), ""), _null(pa.string()), found)


def booleans(values: pa.Array) -> pa.Array:
    """Yes or no."""
    if is_text(values.type):
        return said.booleans(plain(values))
    if not pa.types.is_boolean(values.type):
        raise WrongType(str(values.type))
    return values


def statuses(values: pa.Array) -> pa.Array:
    """OK, or the name of an error."""
    return said.statuses(texts(values))


def kinds(values: pa.Array) -> pa.Array:
    """Roles, by OTLP's numbers or names."""
    values = plain(values)
    if pa.types.is_integer(values.type):
        numbers = values.cast(pa.int64())
        known = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, max(schema.Kind)))
        return pc.if_else(known, numbers, _null(pa.int64())).cast(pa.int8())
    at = pc.index_in(pc.utf8_upper(texts(values)), pa.array(list(_KINDS), pa.string()))
    return pa.array(list(_KINDS.values()), pa.int8()).take(at)


def _scaled(values: pa.Array, unit: int) -> pa.Array:
    numbers = _number(values)
    most = INT64_MAX // unit
    if pa.types.is_floating(numbers.type):
        # 2^63 as a float is one too many.
        good = pc.and_(pc.greater_equal(numbers, 0.0), pc.less(numbers, float(most)))
        good = pc.and_(good, pc.less(pc.multiply(numbers, float(unit)), float(2**63)))
        fit = pc.if_else(good, pc.round(pc.multiply(numbers, float(unit))), _null(numbers.type))
        return fit.cast(pa.int64(), safe=False)
    good = pc.and_(pc.greater_equal(numbers, 0), pc.less_equal(numbers, most))
    return pc.multiply(pc.if_else(good, numbers, _null(numbers.type)).cast(pa.int64()), unit)


def _number(values: pa.Array) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values
    if pa.types.is_floating(values.type):
        return values.cast(pa.float64())
    if pa.types.is_decimal(values.type):
        return values.cast(pa.float64())
    raise WrongType(str(values.type))


def _id_bytes(values: pa.Array, size: int) -> pa.Array:
    values = plain(values)
    if pa.types.is_string(values.type):
        return _of_texts(values, size)
    if pa.types.is_fixed_size_binary(values.type) and values.type.byte_width == size:
        return values
    if pa.types.is_binary(values.type) or pa.types.is_fixed_size_binary(values.type):
        return _of_bytes(values.cast(pa.binary()), size)
    raise WrongType(str(values.type))


def _of_bytes(values: pa.Array, size: int) -> pa.Array:
    """Bytes of that length; of another length they are no id."""
    good = pc.equal(pc.binary_length(values), size)
    return pc.if_else(good, values, _null(pa.binary())).cast(pa.binary(size))


def _of_texts(values: pa.Array, size: int) -> pa.Array:
    values = pc.utf8_trim_whitespace(values)
    is_hex = pc.match_substring_regex(values, f"^[0-9a-fA-F]{{1,{2 * size}}}$")
    hexed = _decoded(pc.if_else(pc.fill_null(is_hex, False), values, "0"), size)
    said = pc.if_else(pc.equal(values, ""), _null(pa.string()), values)
    if pc.all(is_hex).as_py() and said.null_count == 0:
        return hexed
    hashed = hashed_ids(pc.if_else(is_hex, _null(pa.string()), said), size)
    return pc.if_else(pc.is_null(said), _null(pa.binary(size)), pc.if_else(is_hex, hexed, hashed))


def _decoded(digits: pa.Array, size: int) -> pa.Array:
    """The bytes of hexadecimal digits, all at once."""
    padded = pc.utf8_lpad(digits, 2 * size, "0")
    data = bytes.fromhex(pc.binary_join(_one_list(padded), "")[0].as_py() if len(padded) else "")
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(size), len(padded), [None, pa.py_buffer(data)])


def _one_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _numbers_of(ids: pa.Array) -> pa.Array:
    """8 bytes each as signed numbers."""
    filled = pc.fill_null(ids, bytes(SPAN_ID_BYTES))
    data = filled.buffers()[1]
    offset = filled.offset * SPAN_ID_BYTES
    numbers = np.frombuffer(data, ">i8", len(filled), offset) if len(filled) else np.empty(0, ">i8")
    return pa.array(numbers.astype(np.int64), mask=np.asarray(ids.is_null()))


def _nonzero(ids: pa.Array, size: int) -> pa.Array:
    return pc.if_else(pc.equal(ids, pa.scalar(bytes(size), pa.binary(size))), _null(pa.binary(size)), ids)


def is_text(kind: pa.DataType) -> bool:
    """Whether its values are texts, however Arrow keeps them."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def plain(values: pa.Array) -> pa.Array:
    """Without the ways in which Arrow keeps the same texts."""
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
        return values.cast(pa.string())
    if pa.types.is_large_binary(values.type) or pa.types.is_binary_view(values.type):
        return values.cast(pa.binary())
    return values


def _null(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, kind)


Convert = Callable[[pa.Array], pa.Array]
