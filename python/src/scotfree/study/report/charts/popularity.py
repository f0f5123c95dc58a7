"""F3: how the calls spread over methods."""

from __future__ import annotations

import altair as alt
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.figures.result import Result
from scotfree.study.report import bins
from scotfree.study.report.charts import chart, plain, theme
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.published import most_popular

_POINTS_MAX = 500


def _popularity(result: Result) -> list[Chart]:
    """Without an order of latency only that of popularity is there."""
    methods = result.tables.get("methods")
    ordered = [] if methods is None else [_shares(methods), _cumulative(methods)]
    return [*ordered, _by_popularity(result.tables["popularity"], result)]


def _shares(methods: pa.Table) -> Chart:
    """The popular ones all, of the others every so many."""
    shown = methods.select(["rank", "service", "method", "p50", "share"])
    shown = shown.filter(pc.greater(shown["share"], 0.0))
    order = np.argsort(-shown["share"].to_numpy())
    popular, others = order[: _POINTS_MAX // 3], order[_POINTS_MAX // 3 :]
    step = max(1, -(-len(others) // (_POINTS_MAX - len(popular))))
    shown = shown.take(pa.array(np.concatenate([popular, others[::step]])))
    tip = ["service:N", "method:N", chart.tip("share", "share", "of all calls"), chart.tip("p50", "ns", "median")]
    spec = (
        chart.over("f3-shares")
        .mark_circle(size=22, opacity=0.75, color=theme.ONE)
        .encode(
            x=alt.X(
                "rank:Q",
                axis=chart.axis("count", "methods, by their median completion time"),
                scale=_whole(methods),
            ),
            y=chart.log_y("share", "share", "of all calls", chart.powers(shown["share"].to_pylist())),
            tooltip=tip,
        )
    )
    return Chart("Share of all calls that each method has, fast methods on the left", spec, {"f3-shares": shown})


def _whole(methods: pa.Table) -> alt.Scale:
    return alt.Scale(domain=[0, max(methods.num_rows, 2)], nice=False)


def _cumulative(methods: pa.Table) -> Chart:
    thin = bins.thinned(methods, 250)
    rows = pa.concat_tables(
        [_line(thin, "rank", "cumulative_share", "calls"), _line(thin, "rank", "cumulative_time_share", "time")]
    )
    about = "Share of all calls, and of all their time, that the fastest methods together have"
    axes = plain.Axes("fastest methods", "of all", "share")
    return plain.lines("f3-cumulative", rows, about, axes)


def _line(table: pa.Table, x: str, y: str, series: str) -> pa.Table:
    return pa.table(
        {
            "series": pa.array([series] * table.num_rows, pa.string()),
            "x": table[x].cast(pa.float64()),
            "y": table[y].cast(pa.float64()),
        }
    )


def _by_popularity(popularity: pa.Table, result: Result) -> Chart:
    ranks = np.unique(np.geomspace(1, max(popularity.num_rows, 1), 150).astype(int)) - 1
    rows = _line(popularity.take(pa.array(ranks)), "rank", "cumulative_share", "calls")
    points = most_popular(result)
    published = pa.table({"x": [float(top) for top, _ in points], "y": [value for _, value in points]})
    axes = plain.Axes("most popular methods", "of all calls", "share", is_x_log=True)
    made = plain.lines("f3-popular", rows, "", axes)
    tip = [chart.tip("x", "count", "most popular"), chart.tip("y", "share", "published")]
    marks = chart.published("f3-published").encode(x=axes.across(rows), y=axes.up(rows), tooltip=tip)
    about = "Share of all calls that the most popular methods together have; diamonds are published"
    spec = alt.layer(made.spec, marks)
    return Chart(about, spec, {**made.data, "f3-published": published}, height=made.height)


DRAW = {"F3": _popularity}
