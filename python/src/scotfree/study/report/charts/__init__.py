"""The charts of each figure, by its number: from a figure's tables to Vega-Lite."""

from __future__ import annotations

from collections.abc import Callable

from altair.utils.schemapi import debug_mode

from scotfree.study.figures.result import Result
from scotfree.study.report.charts import components, cycles, fleet, per_method, popularity, tax, what_if
from scotfree.study.report.charts.chart import Chart

Draw = Callable[[Result], list[Chart]]

DRAW: dict[str, Draw] = {
    **per_method.DRAW,
    **popularity.DRAW,
    **tax.DRAW,
    **what_if.DRAW,
    **cycles.DRAW,
    **components.DRAW,
    **fleet.DRAW,
}


def drawn(number: str, result: Result) -> list[Chart]:
    """The charts of a figure.

    That their pieces follow Vega-Lite's schema is the tests' to check: here it would take half of the drawing.
    """
    with debug_mode(False):
        draw = DRAW.get(number)
        return draw(result) if draw else []


__all__ = ["DRAW", "Chart", "Draw", "drawn"]
