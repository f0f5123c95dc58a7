"""The published values that charts mark, by where a figure's comparisons place them."""

from __future__ import annotations

from scotfree.study.figures.result import MostPopular, OverMethods, Result, Row
from scotfree.study.report.charts.quantiles import Point


def rows(result: Result) -> dict[Row, float]:
    """Those that stand beside a row."""
    return {
        each.place: each.published
        for each in result.comparisons
        if isinstance(each.place, Row) and each.published is not None
    }


def points(result: Result, quantity: str = "") -> list[Point]:
    """Those of a distribution over methods: of one quantity, or of all that the figure has."""
    return [
        Point(each.place.p, each.place.share, each.published)
        for each in result.comparisons
        if isinstance(each.place, OverMethods)
        and each.published is not None
        and quantity in ("", each.place.quantity)
    ]


def most_popular(result: Result) -> list[tuple[int, float]]:
    """So many of the most popular methods, and their share of the calls."""
    return [
        (each.place.methods, each.published)
        for each in result.comparisons
        if isinstance(each.place, MostPopular) and each.published is not None
    ]
