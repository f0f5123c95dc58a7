"""Chances and intervals: beside tables, and counted out where there is no table."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np
import pytest

from scotfree.study.edges import chance


@pytest.mark.parametrize(
    ("t", "degrees", "p"),
    # Critical values of Student's distribution, to either side.
    [
        (12.706, 1, 0.05),
        (4.303, 2, 0.05),
        (3.182, 3, 0.05),
        (2.776, 4, 0.05),
        (8.610, 4, 0.001),
        (3.496, 70, 8.3e-4),
    ],
)
def test_students_distribution_is_that_of_the_tables(t: float, degrees: int, p: float) -> None:
    assert chance.student(t, degrees) == pytest.approx(p, rel=0.02)
    assert chance.student(-t, degrees + 0.9) == chance.student(t, degrees)


@pytest.mark.parametrize(("p", "degrees", "t"), [(0.05, 4, 2.776), (0.001, 4, 8.610), (1e-5, 10_000, 4.417)])
def test_what_is_needed_is_students_quantile(p: float, degrees: int, t: float) -> None:
    one = chance.Stratum(2, 2, 0.0, 0.0, 0.0, 0.25, degrees, 5, 5, 1e12, 1e12)
    error = 0.5 * np.sqrt(2 / 5)
    assert np.log(chance.told_from(one, chance.Usual(), p)) / error == pytest.approx(t, rel=0.02)


def test_ranks_are_those_of_all_ways_to_deal_the_calls() -> None:
    values = np.array([1.0, 2.0, 2.0, 5.0, 7.0, 7.0, 7.0, 9.0])
    excesses = []
    for places in combinations(range(8), 3):
        of_b = np.isin(np.arange(8), places)
        excesses.append(chance.ranked(values[~of_b], values[of_b])[0])
    _, variance = chance.ranked(values[3:], values[:3])
    assert np.mean(excesses) == pytest.approx(0) and np.var(excesses) == pytest.approx(variance)


def test_failed_calls_have_the_exact_chance() -> None:
    # All of three failed calls among B's four of nine.
    assert chance.errors_p([(0, 5, 3, 4)]) == pytest.approx(2 * comb(4, 3) / comb(9, 3))
    assert chance.errors_p_min([(0, 5, 3, 4)]) == chance.errors_p([(0, 5, 3, 4)])
    assert chance.errors_p([(0, 50, 0, 40)]) == chance.errors_p_min([(0, 50, 0, 40)]) == 1.0
    # Two edges together say more than each.
    both = chance.errors_p([(0, 20, 4, 20), (0, 20, 4, 20)])
    assert both == pytest.approx(2 * (comb(20, 4) / comb(40, 4)) ** 2)


def test_an_interval_is_of_order_statistics() -> None:
    five = chance.interval(np.array([5.0, 1.0, 4.0, 2.0, 3.0]), 0.5)
    assert (five.value, five.low, five.high, five.level) == (3.0, 1.0, 5.0, 0.9375)
    many = chance.interval(np.arange(1.0, 101.0), 0.5)
    # The 40th and the 61st of a hundred.
    assert (many.low, many.high) == (40.0, 61.0) and many.level >= 0.95
    assert chance.interval(np.arange(71.0), 0.95).high is None
    assert chance.interval(np.arange(72.0), 0.95).high == 71.0


def test_an_interval_holds_the_true_quantile_as_often_as_it_says() -> None:
    draws, held = np.random.default_rng(1), 0
    for _ in range(2_000):
        found = chance.interval(draws.exponential(1, 150), 0.95)
        assert found.low is not None and found.high is not None
        held += found.low <= -np.log(0.05) <= found.high
    assert held / 2_000 == pytest.approx(0.96, abs=0.015)


def test_the_more_is_asked_the_surer_it_has_to_be() -> None:
    assert chance.holm([0.001, 0.012, 0.03, 0.9], 0.05) == 0.012
    assert chance.holm([0.02, 0.5, 0.5], 0.05) < 0
    # What could not be a finding is not counted.
    assert chance.needed([0.0, 0.0, 1.0, 1.0, 1.0], 0.05) == 0.025
    assert chance.needed([0.0] * 5, 0.05) == 0.01
