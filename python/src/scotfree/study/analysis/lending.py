"""Columns of Arrow as the kernels in Rust take them: read-only, and where they lie if nothing is to be filled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


def floats(column: Any) -> Array:
    """As floating point, with no number where nothing is known."""
    return read_only(whole(column).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))


def integers(column: Any) -> Array:
    """As they are; 0 where nothing is known (see `known`)."""
    array = whole(column)
    return read_only((pc.fill_null(array, 0) if array.null_count else array).to_numpy())


def known(column: Any) -> Array:
    """A byte for each: 1 where something is known."""
    return read_only(pc.is_valid(whole(column)).cast(pa.uint8()).to_numpy())


def weights(column: Any) -> Array:
    """How many calls each stands for: 1 where nothing is said (R7)."""
    array = whole(column)
    return read_only((pc.fill_null(array, 1.0) if array.null_count else array).to_numpy())


def fixed_bytes(column: Any) -> memoryview:
    """The bytes of a column of fixed width, one behind the other."""
    array = whole(column)
    width = array.type.byte_width
    whole_buffer = memoryview(array.buffers()[1]).toreadonly().cast("B")
    return whole_buffer[array.offset * width : (array.offset + len(array)) * width]


def whole(column: Any) -> pa.Array:
    """In one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def read_only(array: Array) -> Array:
    """Marked so that nobody writes to it while a kernel reads."""
    array.flags.writeable = False
    return array
