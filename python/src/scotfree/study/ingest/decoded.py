"""Columns of the decoders in Rust as tables of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from scotfree._native import Columns


def table(rows: int, columns: Columns, of: pa.Schema, constants: dict[str, Any]) -> pa.Table:
    """Columns as a table of a relation. What the decoder does not give is one value in all rows, or null."""
    given = {name: (values, validity, texts) for name, values, validity, texts in columns}
    arrays = []
    for field in of:
        if field.name in given:
            arrays.append(_array(rows, field.type, *given[field.name]))
        else:
            arrays.append(_constant(rows, field.type, constants.get(field.name)))
    return pa.Table.from_arrays(arrays, schema=of)


def _array(
    rows: int, kind: pa.DataType, values: bytes, validity: bytes | None, texts: tuple[bytes, bytes] | None
) -> pa.Array:
    buffers = [None if validity is None else pa.py_buffer(validity), pa.py_buffer(values)]
    if texts is None:
        return pa.Array.from_buffers(kind, rows, buffers)
    offsets, text = (pa.py_buffer(buffer) for buffer in texts)
    dictionary = pa.StringArray.from_buffers(len(offsets) // 4 - 1, offsets, text)
    return pa.DictionaryArray.from_arrays(pa.Array.from_buffers(kind.index_type, rows, buffers), dictionary)


def _constant(rows: int, kind: pa.DataType, value: Any) -> pa.Array:
    return pa.nulls(rows, kind) if value is None else pa.repeat(pa.scalar(value, kind), rows)
