"""F2: completion time per method."""

from __future__ import annotations

from scotfree.study.figures.result import Result
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.quantiles import Point, Quantity, per_method

_TOTAL = Quantity("f2", "completion time", "ns")
_MS = 1e6
# F2b of the specification: a quantile, the share of methods that do not exceed the value.
_PUBLISHED = (
    Point(0.01, 0.90, 0.657 * _MS),
    Point(0.50, 0.10, 10.7 * _MS),
    Point(0.99, 0.005, 1 * _MS),
    Point(0.99, 0.50, 225 * _MS),
    Point(0.01, 0.95, 166 * _MS),
    Point(0.99, 0.95, 5000 * _MS),
)


def _total(result: Result) -> list[Chart]:
    return per_method(result.tables["methods"], _TOTAL, _PUBLISHED)


DRAW = {"F2": _total}
