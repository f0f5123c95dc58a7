"""Published values are marked by where comparisons place them: how these are worded changes no chart."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from made_report import made_report

from scotfree.study.figures.result import Comparison, Coverage, MostPopular, OverMethods, Result, Row
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.charts import DRAW, published

# Figures whose charts mark what their comparisons say; F15 and T1 draw a table of the paper's.
MARKED = (
    "F1",
    "F2",
    "F3",
    "F4",
    "F5",
    "F6",
    "F8",
    "F10",
    "F11",
    "F12",
    "F13",
    "F20",
    "F21",
    "F23",
    "S2.1",
    "S5.2",
)


def figure(number: str) -> Computed:
    return next(each for each in made_report().computed if each.figure.number == number)


def data(number: str, result: Result) -> list[dict[str, pa.Table]]:
    return [chart.data for chart in DRAW[number](result)]


def test_every_other_figure_marks_nothing() -> None:
    placed = {
        each.figure.number for each in made_report().computed if any(c.place for c in each.result.comparisons)
    }
    assert placed == set(MARKED)


@pytest.mark.parametrize("number", MARKED)
def test_wording_changes_no_mark(number: str) -> None:
    result = figure(number).result
    reworded = [replace(each, what=f"value {at}") for at, each in enumerate(result.comparisons)]
    assert data(number, replace(result, comparisons=reworded)) == data(number, result)


@pytest.mark.parametrize("number", MARKED)
def test_without_places_there_are_no_marks(number: str) -> None:
    result = figure(number).result
    unplaced = [replace(each, place=None) for each in result.comparisons]
    assert data(number, replace(result, comparisons=unplaced)) != data(number, result)


def test_values_are_found_by_their_place() -> None:
    result = Result(
        Coverage.COMPLETE,
        comparisons=[
            Comparison("a", 1.0, None, "share", place=Row("all", "calls")),
            Comparison("b", None, 2.0, "share", place=Row("none")),
            Comparison("c", 3.0, None, "ns", place=OverMethods("total", 0.99, 0.005)),
            Comparison("d", 4.0, None, "ns", place=OverMethods("queue", 0.5, 0.5)),
            Comparison("e", 0.5, None, "share", place=MostPopular(10)),
            Comparison("f", 6.0, None, "share"),
        ],
    )
    assert published.rows(result) == {Row("all", "calls"): 1.0}
    assert [(one.p, one.share, one.value) for one in published.points(result, "total")] == [(0.99, 0.005, 3.0)]
    assert len(published.points(result)) == 2
    assert published.most_popular(result) == [(10, 0.5)]
