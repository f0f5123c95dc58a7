"""The figures of quantiles per method: F2, F4 to F7, F11 to F13, F21."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from scotfree.study.figures.result import Result
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.plain import correlations
from scotfree.study.report.charts.published import points
from scotfree.study.report.charts.quantiles import Quantity, charts

_QUANTITIES = {
    "F2": Quantity("f2", "completion time", "ns"),
    "F4": Quantity("f4", "descendants", "count", scale="symlog"),
    "F5": Quantity("f5", "ancestors", "count", scale="linear"),
    "F7": Quantity("f7", "response by request, ratio", "ratio"),
    "F11": Quantity("f11", "tax of the completion time", "share", scale="linear"),
    "F12": Quantity("f12", "time in wire and stack", "ns"),
    "F13": Quantity("f13", "time in queues", "ns"),
}
_CYCLES = Quantity("f21", "normalized cycles per call", "ratio")


def _one(number: str, result: Result) -> list[Chart]:
    return charts(result.tables["methods"], _QUANTITIES[number], points(result))


def _sizes(result: Result) -> list[Chart]:
    return [
        drawn
        for noun, quantity in (("request", "req_bytes"), ("response", "resp_bytes"))
        if f"{noun}s_methods" in result.tables
        for drawn in charts(
            result.tables[f"{noun}s_methods"],
            Quantity(f"f6-{noun}", f"{noun} size", "bytes"),
            points(result, quantity),
        )
    ]


def _cycles(result: Result) -> list[Chart]:
    made = charts(result.tables["methods"], _CYCLES, points(result))
    if "rank_correlations" in result.tables:
        made.append(
            correlations(
                "f21-correlations",
                result.tables["rank_correlations"].rename_columns({"quantity": "row", "spearman": "value"}),
                "Rank correlation (Spearman) over methods of the median of cycles with that of other quantities",
            )
        )
    return made


DRAW: dict[str, Callable[[Result], list[Chart]]] = {
    **{number: partial(_one, number) for number in _QUANTITIES},
    "F6": _sizes,
    "F21": _cycles,
}
