"""The cache and EdgeRAG's threshold, beside the thesis' algorithms as they are written."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scotfree.rag.cache import DECAY, Cache
from scotfree.rag.edge.threshold import WEIGHT, Threshold

ROW = np.zeros((1, 4), np.float32)


class Written:
    """Algorithm 2 to the letter but for its two faults: every counter is lowered at every access."""

    def __init__(self, places: int) -> None:
        self.places = places
        self.counters: dict[int, float] = {}

    def access(self, cluster: int, costs: dict[int, float]) -> bool:
        is_hit = cluster in self.counters
        if is_hit:
            self.counters[cluster] += 1
        else:
            if len(self.counters) == self.places:
                del self.counters[min(self.counters, key=lambda one: self.counters[one] * costs[one])]
            self.counters[cluster] = 1.0
        self.counters = {one: counter * DECAY for one, counter in self.counters.items()}
        return is_hit


# Unlike powers of the decay, so that no two weights are equal.
COSTS = {cluster: 1000 * 1.37**cluster for cluster in range(8)}


@given(st.lists(st.integers(0, 7), max_size=80), st.integers(1, 5))
def test_lazy_decay_evicts_what_lowering_every_counter_evicts(accesses: list[int], places: int) -> None:
    cache, written = Cache(places * ROW.nbytes), Written(places)
    for cluster in accesses:
        is_hit = cache.get(cluster) is not None
        if not is_hit:
            cache.put(cluster, ROW, COSTS[cluster])
        assert is_hit == written.access(cluster, COSTS)
        assert {one for one in COSTS if one in cache} == set(written.counters)


def test_nothing_is_evicted_while_there_is_room_and_bytes_are_bounded() -> None:
    cache = Cache(5 * ROW.nbytes)
    for cluster in range(5):
        cache.put(cluster, ROW, 1.0)
    assert len(cache) == 5 and cache.bytes == cache.bytes_max
    cache.put(9, np.zeros((3, 4), np.float32), 1.0)
    assert len(cache) == 3 and cache.bytes == cache.bytes_max and 9 in cache
    cache.put(10, np.zeros((6, 4), np.float32), 1e9)
    assert 10 not in cache and len(cache) == 3, "what never fits throws nothing out"


def test_the_dear_stay_longer_than_the_cheap_and_the_used_than_the_unused() -> None:
    cache = Cache(2 * ROW.nbytes)
    cache.put(1, ROW, 1000.0)
    cache.put(2, ROW, 10.0)
    cache.put(3, ROW, 100.0)
    assert 2 not in cache and 1 in cache
    for _ in range(20):
        assert cache.get(3) is not None
    cache.put(4, ROW, 1500.0)
    assert 3 in cache and 1 not in cache, "20 uses at 100 are more than one at 1000"


def test_what_is_used_for_ever_takes_no_more_memory() -> None:
    cache = Cache(3 * ROW.nbytes)
    for place in range(5000):
        if cache.get(place % 4) is None:
            cache.put(place % 4, ROW, 10.0)
        assert len(cache._heap) <= 4 * len(cache) + 65


def test_long_use_is_forgotten() -> None:
    cache = Cache(2 * ROW.nbytes)
    cache.put(1, ROW, 10.0)
    cache.put(2, ROW, 10.0)
    for _ in range(50):
        cache.get(1)
    for _ in range(2000):
        cache.get(99)
    cache.get(2)
    cache.put(3, ROW, 10.0)
    assert 1 not in cache, "50 uses of long ago are less than one of now"


def test_what_changed_and_what_is_too_cheap_is_dropped() -> None:
    cache = Cache(9 * ROW.nbytes)
    for cluster in range(4):
        cache.put(cluster, ROW, float(10**cluster))
    cache.drop(3)
    cache.drop(3)
    cache.drop_cheaper(10.0)
    assert [cluster for cluster in range(4) if cluster in cache] == [1, 2] and cache.bytes == 2 * ROW.nbytes
    cache.put(2, np.ones((1, 4), np.float32), 5.0)
    found = cache.get(2)
    assert found is not None and found.sum() == 4 and cache.bytes == 2 * ROW.nbytes


@pytest.mark.parametrize(("is_pseudo_code", "fast", "slow"), [(False, 1, 0), (True, 0, 1)])
def test_the_threshold_rises_as_the_text_or_as_the_pseudo_code_says(
    is_pseudo_code: bool, fast: int, slow: int
) -> None:
    for latency_ns, steps in ((50.0, fast), (150.0, slow)):
        threshold = Threshold(is_pseudo_code, step_ns=7.0)
        threshold.observe(100.0, has_missed=True)
        threshold.observe(latency_ns, has_missed=True)
        assert threshold.cost_ns == 7.0 * steps
        assert threshold.average_ns == pytest.approx((1 - WEIGHT) * 100.0 + WEIGHT * latency_ns)


def test_without_a_miss_the_threshold_falls_to_nothing_and_no_further() -> None:
    threshold = Threshold(step_ns=7.0, cost_ns=10.0)
    for wanted in (3.0, 0.0, 0.0):
        threshold.observe(100.0, has_missed=False)
        assert threshold.cost_ns == wanted
