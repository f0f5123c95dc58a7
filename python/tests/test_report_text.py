"""Numbers as people read them."""

from __future__ import annotations

import math

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study.figures.result import Comparison
from scotfree.study.report import bins, text


def test_units_fit_the_size() -> None:
    said = [text.quantity(value, "ns") for value in (0.0, 12.0, 999.6, 657_000.0, 10.7e6, 5e9)]
    assert [part.replace("\u202f", " ") for part in said] == ["0 ns", "12 ns", "1 µs", "657 µs", "10.7 ms", "5 s"]
    assert text.quantity(0.0199, "share").replace("\u202f", " ") == "1.99 %"
    assert text.quantity(1530.0, "bytes").replace("\u202f", " ") == "1.53 kB"
    counts = [text.quantity(value, "calls") for value in (985, 9_000, 10_000, 1e9, 722e9)]
    assert [part.split("\u202f") for part in counts] == [
        ["985", "calls"],
        ["9000", "calls"],
        ["10", "k", "calls"],
        ["1", "G", "calls"],
        ["722", "G", "calls"],
    ]
    assert text.quantity(None, "ns") == text.quantity(math.nan, "ns") == text.NONE
    assert text.quantity(1, "clusters") == "1\u202fcluster"
    # Normalized: their unit is not known.
    assert text.quantity(0.017, "cycles") == "0.017"


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    said = "30 % of 12 methods take 3 ms, 7 s or 5 GB/s; 2 services send 1 kB."
    assert text.unbroken(said).replace("\u00a0", "_") == (
        "30_% of 12 methods take 3_ms, 7_s or 5_GB/s; 2 services send 1_kB."
    )


@settings(deadline=None, max_examples=200)
@given(st.floats(1e-9, 1e15))
def test_what_is_written_is_the_value_within_half_a_percent(value: float) -> None:
    assert math.isclose(float(text.digits(value)), value, rel_tol=0.0051)


def test_beside_is_a_ratio_only_where_both_are_known() -> None:
    assert text.beside(Comparison("x", 2.0, 1.0, "ratio")) == "0.5\u00d7"
    assert text.beside(Comparison("x", 722e9, 985.0, "calls")) == "below 0.001\u00d7"
    assert text.beside(Comparison("x", None, 1.0, "ratio")) == ""
    assert text.beside(Comparison("x", 0.0, 1.0, "ratio")) == ""
    assert text.beside(Comparison("x", 2.0, None, "ratio")) == ""
    assert text.beside(Comparison("x", 2.0, 1.0, "cycles")) == ""


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 3000), st.integers(1, 500))
def test_binned_ranks_cover_every_method_once(methods: int, columns_max: int) -> None:
    table = pa.table({"p50": [float(rank) for rank in range(1, methods + 1)]})
    binned = bins.by_rank(table, ["p50"], columns_max)
    assert binned.num_rows == min(methods, columns_max)
    covered = [
        rank
        for low, high in zip(binned["rank"].to_pylist(), binned["rank_to"].to_pylist(), strict=True)
        for rank in range(low, high + 1)
    ]
    assert covered == list(range(1, methods + 1))
    for low, high, middle in zip(*(binned[name].to_pylist() for name in ("rank", "rank_to", "p50")), strict=True):
        assert low <= middle <= high


def test_the_page_has_no_number_that_json_does_not_know() -> None:
    kept = bins.columns(
        pa.table({"x": [1.23456789, float("nan"), float("inf"), None, 2.0], "n": [1, 2, None, 10**18, 5]})
    )
    assert kept == {"x": [1.235, None, None, None, 2], "n": [1, 2, None, 10**18, 5]}
