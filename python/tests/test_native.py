"""The module in Rust, through Python's buffers."""

import numpy as np
import pytest

from scotfree import _native


def test_a_chain_of_three() -> None:
    spans = np.array([1, 2, 3], np.int64)
    parents = np.array([0, 1, 2], np.int64)
    descendants, ancestors, cyclic = _native.tree(bytes(48), spans, parents, np.array([0, 1, 1], np.uint8))
    assert np.frombuffer(descendants, np.uint32).tolist() == [2, 1, 0]
    assert np.frombuffer(ancestors, np.uint32).tolist() == [0, 1, 2]
    assert cyclic == bytes(3)


def test_columns_of_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="unequal"):
        _native.tree(bytes(16), np.array([1, 2], np.int64), np.array([0], np.int64), bytes(1))
