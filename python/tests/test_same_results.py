"""That results which differ are told apart: else the engines' agreement would say nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from same_results import assert_same, assert_same_table

from scotfree.study.figures.result import Comparison, Coverage, Result

TABLE = pa.table({"method": ["a", "b", None], "calls": [1, 2, 3], "share": [0.1, 0.2, None]})
OTHERS: dict[str, pa.Table] = {
    "a number": TABLE.set_column(2, "share", pa.array([0.1, 0.2 * (1 + 1e-11), None])),
    "a number for none": TABLE.set_column(2, "share", pa.array([0.1, 0.2, 0.0])),
    "a sign": TABLE.set_column(2, "share", pa.array([0.1, -0.2, None])),
    "a count": TABLE.set_column(1, "calls", pa.array([1, 2, 4])),
    "a type": TABLE.set_column(1, "calls", pa.array([1, 2, 3], pa.int32())),
    "a name": TABLE.rename_columns(["name", "calls", "share"]),
    "a row less": TABLE.slice(1),
    "no row": TABLE.slice(3),
}


def test_order_and_rounding_make_no_difference() -> None:
    rounded = TABLE.set_column(2, "share", pa.array([0.1, 0.2 * (1 + 1e-15), None]))
    assert_same_table(TABLE, rounded.take([2, 0, 1]))


@pytest.mark.parametrize("case", OTHERS)
def test_tables_that_differ_are_told(case: str) -> None:
    with pytest.raises(AssertionError):
        assert_same_table(TABLE, OTHERS[case])


@pytest.mark.parametrize(
    "other",
    [
        {"coverage": Coverage.PARTIAL},
        {"findings": ["another"]},
        {"tables": {}},
        {"comparisons": [Comparison("tax", 0.02, 0.031, "share")]},
    ],
    ids=lambda other: next(iter(other)),
)
def test_results_that_differ_are_told(other: dict[str, Any]) -> None:
    said: dict[str, Any] = {
        "coverage": Coverage.COMPLETE,
        "tables": {"one": TABLE},
        "findings": ["one"],
        "comparisons": [Comparison("tax", 0.02, 0.03, "share")],
    }
    assert_same(Result(**said), Result(**said))
    with pytest.raises(AssertionError):
        assert_same(Result(**said), Result(**(said | other)))
