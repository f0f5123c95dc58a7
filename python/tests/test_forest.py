"""Parents as columns: rings and nearest ancestors, against walks one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.ingest import forest

PARENTS = st.integers(1, 40).flatmap(lambda n: st.lists(st.integers(-1, n - 1), min_size=n, max_size=n))


def _walk(parents: list[int], row: int) -> list[int]:
    """The rows above, until one comes again."""
    seen: list[int] = []
    while row >= 0 and row not in seen:
        seen.append(row)
        row = parents[row]
    return [*seen, row]


@settings(deadline=None)
@given(PARENTS)
def test_rings_are_the_rows_that_come_back_to_themselves(parents: list[int]) -> None:
    found = forest.rings(np.array(parents))
    assert found.tolist() == [_walk(parents, row)[-1] == row for row in range(len(parents))]


@settings(deadline=None)
@given(PARENTS, st.data())
def test_all_come_to_the_nearest_that_stays(parents: list[int], data: st.DataObject) -> None:
    count = len(parents)
    stays = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rings = forest.rings(np.array(parents))
    hop = [row if stays[row] else -1 if rings[row] else parents[row] for row in range(count)]
    expected = []
    for row in range(count):
        at = row
        while at >= 0 and hop[at] != at:
            at = hop[at]
        expected.append(at)
    assert forest.settle(np.array(hop)).tolist() == expected


def test_a_chain_of_a_million_and_a_ring_of_a_million_end() -> None:
    count = 1_000_000
    chain = np.arange(count) - 1
    assert not forest.rings(chain).any()
    ring = chain.copy()
    ring[0] = count - 1
    assert forest.rings(ring).all()


def test_nothing_is_a_forest() -> None:
    nothing = np.zeros(0, np.int64)
    assert len(forest.rings(nothing)) == len(forest.settle(nothing)) == 0
