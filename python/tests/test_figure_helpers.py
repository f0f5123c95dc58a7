"""What the figures of quantiles per method share."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import spans, study_of

from scotfree.study.figures import all_figures, inputs, latency, sizes, words
from scotfree.study.figures.cycles_per_call import spearman
from scotfree.study.figures.per_method import Quantity, finding, nearest_rank
from scotfree.study.figures.result import Coverage

NUMBERS = st.lists(st.integers(-50, 50), min_size=3, max_size=30)


def test_figures_come_in_the_papers_order() -> None:
    numbers = [figure.number for figure in all_figures()]
    assert len(set(numbers)) == len(numbers)
    assert [n for n in numbers if n in ("F2", "F3", "F11", "F21", "S5.2")] == ["F2", "F3", "F11", "F21", "S5.2"]


@settings(deadline=None, max_examples=50)
@given(NUMBERS, st.integers(1, 100))
def test_nearest_rank_is_the_smallest_value_that_reaches_the_share(of: list[int], percent: int) -> None:
    found = nearest_rank(np.array(of), percent / 100)
    expected = sorted(of)[math.ceil(percent * len(of) / 100 - 1e-9) - 1]
    assert found == expected


def test_nothing_has_no_rank() -> None:
    assert nearest_rank(np.array([]), 0.5) is None


def test_rank_correlation_of_a_known_pair() -> None:
    # By hand: ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4.
    assert spearman(np.array([1, 5, 5, 9]), np.array([0, 1, 2, 3])) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


@settings(deadline=None, max_examples=50)
@given(NUMBERS)
def test_rank_correlation_sees_order_only(of: list[int]) -> None:
    x = np.array(of, float)
    rho = spearman(x, np.arange(len(x)))
    assert spearman(np.exp(x / 10), np.arange(len(x))) == pytest.approx(rho)
    assert spearman(-x, np.arange(len(x))) == pytest.approx(-rho)


@pytest.mark.parametrize(
    ("value", "said"), [(999, "999 B"), (1530, "1.53 kB"), (196_000, "196 kB"), (563e6, "563 MB")]
)
def test_sizes_are_said_in_decimal_units(value: float, said: str) -> None:
    assert words.size(value) == said


@pytest.mark.parametrize(
    ("ns", "said"),
    [(0, "0 ns"), (999.4, "999 ns"), (999.7, "1 µs"), (999_600, "1 ms"), (10.7e6, "10.7 ms"), (2587e9, "2,587 s")],
)
def test_durations_need_no_exponent(ns: float, said: str) -> None:
    assert words.duration(ns) == said


def test_nothing_is_no_row_of_zeros_and_no_empty_name() -> None:
    assert words.percent(0.0) == "0 %"
    assert words.percent(0.0043) == "0.43 %"
    assert words.called("bookie", "") == "bookie (no name)"
    assert words.called("", "") == words.UNNAMED
    assert words.called("auth", "post /oauth/token") == "auth post /oauth/token"
    assert words.called("shop.Cart", "/shop.Cart/Get") == "/shop.Cart/Get"


def test_one_method_is_not_spoken_of_in_halves() -> None:
    one = pa.table({"service": ["cart"], "method": ["Get"], "p50": [1e6], "p99": [3e6]})
    time = Quantity("total", "completion time", "ns", words.duration, "")
    assert finding(time, one) == "Completion time: cart Get has a median of 1 ms and a P99 of 3 ms."


def test_what_both_halves_of_the_sizes_lack_is_said_once(tmp_path: Path) -> None:
    stages = np.full((200, 9), 1_000_000)
    assert sizes.sizes(study_of(tmp_path, spans(stages=stages))).missing == [inputs.SIZES]


@pytest.mark.parametrize(("rare_methods", "coverage"), [(20, Coverage.COMPLETE), (60, Coverage.PARTIAL)])
def test_a_figure_that_leaves_most_calls_out_is_not_complete(
    tmp_path: Path, rare_methods: int, coverage: Coverage
) -> None:
    # One method of a hundred calls, and methods of two calls each.
    methods = ["Get"] * 100 + [f"Rare{index // 2}" for index in range(2 * rare_methods)]
    result = latency.compute(study_of(tmp_path, spans(method=methods, total_ns=np.full(len(methods), 1000))))
    assert result.coverage is coverage
    assert [said for said in result.missing if "45 %" in said] == result.missing
