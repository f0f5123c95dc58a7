"""The module in Rust, through Python's buffers."""

from typing import Any

import numpy as np
import pytest

from scotfree import _native


def lent(values: list[int], kind: type = np.int64) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = np.array(values, kind)
    array.flags.writeable = False
    return array


def test_a_chain_of_three() -> None:
    spans = lent([1, 2, 3])
    parents = lent([0, 1, 2])
    descendants, ancestors, cyclic = _native.tree(bytes(48), spans, parents, lent([0, 1, 1], np.uint8))
    assert np.frombuffer(descendants, np.uint32).tolist() == [2, 1, 0]
    assert np.frombuffer(ancestors, np.uint32).tolist() == [0, 1, 2]
    assert cyclic == bytes(3)


def test_columns_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="unequal"):
        _native.tree(bytes(16), lent([1, 2]), lent([0]), bytes(1))


def test_a_column_that_can_be_written_to_is_refused() -> None:
    with pytest.raises(ValueError, match="read-only"):
        _native.value_bins(np.zeros(3))


def test_a_column_with_gaps_is_refused() -> None:
    with pytest.raises(ValueError, match="gaps"):
        _native.bin_values(lent([1, 2, 3, 4], np.int32)[::2])
