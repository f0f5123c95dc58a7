"""Rows of a relation from columns: what readers of tables share."""

from __future__ import annotations

import hashlib

import pyarrow as pa

TRACE_ID_BYTES = 16
SPAN_ID_BYTES = 8


def table_of(of: pa.Schema, columns: dict[str, pa.Array], count: int) -> pa.Table:
    """A table in that schema; columns that are not given are null."""
    return pa.table(
        [
            column(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in of
        ],
        schema=of,
    )


def column(values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """The same values in that type, of dictionaries too."""
    if not pa.types.is_dictionary(kind):
        return values.cast(kind)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    return values.cast(kind.value_type).dictionary_encode().cast(kind)


def hashed_ids(texts: pa.Array, size: int) -> pa.Array:
    """Ids of `size` bytes for ids that are texts: the same for the same text, wherever it stands."""
    encoded = texts.dictionary_encode()
    ids = [_digest(text, size) for text in encoded.dictionary.to_pylist()]
    return pa.array(ids, pa.binary(size)).take(encoded.indices)


def hashed_span_ids(texts: pa.Array) -> pa.Array:
    """Ids of 8 bytes as numbers for ids that are texts."""
    encoded = texts.dictionary_encode()
    ids = [
        int.from_bytes(_digest(text, SPAN_ID_BYTES), "big", signed=True) for text in encoded.dictionary.to_pylist()
    ]
    return pa.array(ids, pa.int64()).take(encoded.indices)


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=size).digest()
