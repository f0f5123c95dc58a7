"""The charts of each figure, by its number: from a figure's tables to Vega-Lite."""

from __future__ import annotations

from collections.abc import Callable

from scotfree.study.figures.result import Result
from scotfree.study.report.charts import latency
from scotfree.study.report.charts.chart import Chart

Draw = Callable[[Result], list[Chart]]

DRAW: dict[str, Draw] = {**latency.DRAW}

__all__ = ["DRAW", "Chart", "Draw"]
