"""Which partition a trace is in."""

import numpy as np
import pyarrow as pa
import pytest

from scotfree.study.store import partitions_of, trace_words


def _ids(numbers: np.ndarray) -> pa.Array:
    return pa.array([int(number).to_bytes(16, "big") for number in numbers], pa.binary(16))


@pytest.mark.parametrize("factor", [1, 2**40, 2**70], ids=["counters", "whole words", "second half zero"])
def test_partitions_are_even_for_ids_that_are_not_random(factor: int) -> None:
    ids = _ids(np.array([number * factor for number in range(64_000)], object))
    counts = np.bincount(partitions_of(trace_words(ids), 64), minlength=64)
    assert counts.min() > 800
    assert counts.max() < 1200


def test_a_slice_of_ids_has_the_partitions_of_those_ids() -> None:
    ids = _ids(np.arange(100))
    whole = partitions_of(trace_words(ids), 7)
    assert (partitions_of(trace_words(ids.slice(30, 20)), 7) == whole[30:50]).all()


def test_fewer_partitions_join_whole_ones() -> None:
    """So that what is made per partition of 64 can be written to 16."""
    words = trace_words(_ids(np.arange(1000)))
    assert (partitions_of(words, 64) % 16 == partitions_of(words, 16)).all()
