"""Charts without stages: bars with published marks, lines over time, distributions, matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.report.charts import chart, theme
from scotfree.study.report.charts.chart import Chart

_DAY_MS = 86_400_000
# For at most so many days.
_TIME_FORMS = ((3.0, "%H:%M"), (120.0, "%d %b"), (float("inf"), "%b %Y"))


def shares(name: str, rows: pa.Table, about: str, *, title: str, unit: str = "share", top: int = 24) -> Chart:
    """Bars of `value`, one for each `row`, in their order; a mark at `published` where that is known."""
    rows = rows.slice(0, top)
    y = chart.names("row")
    scale = alt.Scale(nice=True)
    tip = ["row:N", chart.tip("value", unit)]
    bar = chart.over(name).mark_bar(color=theme.ONE, height={"band": 0.62})
    drawn: Any = bar.encode(
        y=y, x=alt.X("value:Q", scale=scale, axis=chart.axis(unit, title, tickCount=6)), tooltip=tip
    )
    if "published" in rows.column_names and rows["published"].null_count < rows.num_rows:
        mark = chart.published(name)
        tip = ["row:N", chart.tip("published", unit)]
        drawn = alt.layer(drawn, mark.encode(y=y, x=alt.X("published:Q", scale=scale), tooltip=tip))
        about += "; diamonds are published"
    return Chart(about, drawn, {name: rows}, height=max(80, 24 * rows.num_rows + 10))


def stacked(
    name: str, rows: pa.Table, about: str, order: list[str], series: list[str], *, title: str, unit: str = "share"
) -> Chart:
    """Bars of `value`, one for each `row` in this order, made of `series`."""
    rows = rows.append_column(
        "place", pa.array([series.index(one) for one in rows["series"].to_pylist()], pa.int32())
    )
    scale = alt.Scale(domain=[0, 1], clamp=True) if unit == "share" else alt.Scale()
    spec = (
        chart.over(name)
        .mark_bar(height={"band": 0.72})
        .encode(
            y=chart.names("row", order),
            x=alt.X("value:Q", stack="zero", axis=chart.axis(unit, title), scale=scale),
            color=classes(series),
            order="place:Q",
            tooltip=["row:N", "series:N", chart.tip("value", unit)],
        )
    )
    return Chart(about, spec, {name: rows}, height=max(80, 24 * len(order) + 10))


def correlations(name: str, rows: pa.Table, about: str) -> Chart:
    """Bars of `value` from -1 to 1, one for each `row`; an interval from `low` to `high` where known."""
    y = chart.names("row")
    scale = alt.Scale(domain=[-1, 1])
    x = alt.X("value:Q", scale=scale, axis=alt.Axis(title="Spearman's rank correlation", grid=True, tickCount=5))
    tip = ["row:N", alt.Tooltip("value:Q", format=".2f")]
    drawn: Any = chart.over(name).mark_bar(color=theme.ONE, height={"band": 0.5}).encode(y=y, x=x, tooltip=tip)
    if {"low", "high"} <= set(rows.column_names):
        rule = chart.over(name).mark_rule(strokeWidth=2, color=theme.OTHER)
        drawn = alt.layer(drawn, rule.encode(y=y, x=alt.X("low:Q", scale=scale), x2="high:Q"))
    return Chart(about, drawn, {name: rows}, height=max(80, 24 * rows.num_rows + 10))


def classes(domain: list[str], symbol: str = "square") -> alt.Color:
    """The colour of `series`, with its legend if there are several; what is published has its own."""
    legend = alt.Legend(title=None, symbolType=symbol, symbolStrokeWidth=3) if len(domain) > 1 else None
    range_ = [
        theme.PUBLISHED if one.startswith("published") else theme.CLASSES[at % len(theme.CLASSES)]
        for at, one in enumerate(domain)
    ]
    return alt.Color("series:N", scale=alt.Scale(domain=domain, range=range_), legend=legend)


@dataclass(frozen=True)
class Axes:
    """What the axes of lines say: units are keys of `chart.LABELS`, for the horizontal one also `time`."""

    x_title: str
    title: str
    unit: str
    x_unit: str = "count"
    is_x_log: bool = False
    is_log: bool = False
    is_step: bool = False
    is_zero: bool = True

    def across(self, rows: pa.Table) -> alt.X:
        """The horizontal axis."""
        if self.x_unit == "time":
            # Half hours and days are those of UTC, wherever the page is read.
            axis = alt.Axis(title=self.x_title, tickCount=5, labelAngle=0, format=_time_form(rows["x"]))
            return alt.X("x:T", axis=axis, scale=alt.Scale(type="utc"))
        if self.is_x_log:
            return chart.log_x("x", self.x_unit, self.x_title, chart.powers(rows["x"].to_pylist()))
        scale = alt.Scale(zero=False, nice=False)
        return alt.X("x:Q", axis=chart.axis(self.x_unit, self.x_title, tickCount=8), scale=scale)

    def up(self, rows: pa.Table) -> alt.Y:
        """The vertical axis."""
        if self.is_log:
            return chart.log_y("y", self.unit, self.title, chart.powers(rows["y"].to_pylist()))
        axis = chart.axis(self.unit, self.title, tickCount=5)
        return alt.Y("y:Q", axis=axis, scale=alt.Scale(zero=self.is_zero))


def lines(name: str, rows: pa.Table, about: str, axes: Axes, *, is_small: bool = False) -> Chart:
    """A line for each `series`: `x` (ns of the epoch if time) and `y`; dashed where `dashed` says so."""
    series = list(dict.fromkeys(rows["series"].to_pylist()))
    if axes.x_unit == "time":
        rows = rows.set_column(rows.column_names.index("x"), "x", _milliseconds(rows["x"]))
    encoded: dict[str, Any] = {"x": axes.across(rows), "y": axes.up(rows), "color": classes(series, "stroke")}
    if "dashed" in rows.column_names:
        dash = alt.Scale(domain=[False, True], range=[[1, 0], [5, 3]])
        encoded["strokeDash"] = alt.StrokeDash("dashed:N", scale=dash, legend=None)
    step: Any = "step-after" if axes.is_step else "linear"
    line: Any = chart.over(name).mark_line(strokeWidth=1.6, interpolate=step, clip=True)
    # Of a line under the pointer its first point is known and no other, so no value is said.
    spec = line.encode(**encoded, tooltip=["series:N"])
    return Chart(about, spec, {name: rows}, height=180 if is_small else 260, is_small=is_small)


def _time_form(milliseconds: pa.ChunkedArray) -> str:
    days = (pc.max(milliseconds).as_py() - pc.min(milliseconds).as_py()) / _DAY_MS
    return next(form for most, form in _TIME_FORMS if days <= most)


def _milliseconds(values: pa.ChunkedArray) -> pa.Array:
    return pa.array([None if value is None else round(value / 1e6) for value in values.to_pylist()], pa.int64())


def matrix(
    name: str, rows: pa.Table, about: str, *, columns: list[str], form: str = ".1f", is_signed: bool = False
) -> Chart:
    """Cells at `row` and `column` with their `value` written in them, darker where it is larger."""
    x = alt.X(
        "column:N",
        sort=columns,
        axis=alt.Axis(title=None, orient="top", labelAngle=-90, labelOverlap=False, labelLimit=160),
    )
    y = chart.names("row", longest=16)
    base = chart.over(name).encode(x=x, y=y)
    scale = alt.Scale(range=["#3b7fb814", "#3b7fb8"], domainMin=0)
    if is_signed:
        # Each colour fades towards 0; one between both would be mud.
        faded = ["#e2711d", "#e2711d08", "#3b7fb808", "#3b7fb8"]
        scale = alt.Scale(range=faded, domain=[-1, -1e-9, 1e-9, 1], interpolate="rgb")
    colour = alt.Color("value:Q", scale=scale, legend=None)
    tip = ["row:N", "column:N", alt.Tooltip("value:Q", format=form)]
    cells = base.mark_rect().encode(color=colour, tooltip=tip)
    written = base.mark_text(fontSize=alt.ExprRef("width < 300 ? 9 : 10")).encode(
        text=alt.Text("value:Q", format=form)
    )
    count = len(set(rows["row"].to_pylist()))
    return Chart(about, alt.layer(cells, written), {name: rows}, height=26 * count + 10)


def grouped(name: str, rows: pa.Table, about: str, *, title: str, unit: str = "share") -> Chart:
    """Bars of `value` side by side: one for each `series` of each `row`; a mark at `published` where known."""
    series = list(dict.fromkeys(rows["series"].to_pylist()))
    y = chart.names("row")
    tip = ["row:N", "series:N", *(chart.tip(of, unit) for of in ("value", "published"))]
    offset = alt.YOffset("series:N", sort=series)
    x = alt.X("value:Q", axis=chart.axis(unit, title, tickCount=6))
    bar = chart.over(name).mark_bar().encode(y=y, yOffset=offset, x=x, color=classes(series), tooltip=tip)
    mark = chart.published(name).encode(y=y, yOffset=offset, x="published:Q", tooltip=tip)
    count = len(set(rows["row"].to_pylist()))
    return Chart(about + "; diamonds are published", alt.layer(bar, mark), {name: rows}, height=34 * count + 10)


def dots(name: str, rows: pa.Table, about: str, *, title: str, unit: str) -> Chart:
    """A dot for each `series` of each `row`, on a logarithmic axis; the published one is a diamond."""
    series = list(dict.fromkeys(rows["series"].to_pylist()))
    colours = [theme.PUBLISHED if one == "published" else theme.CLASSES[at] for at, one in enumerate(series)]
    shapes = ["diamond" if one == "published" else "circle" for one in series]
    y = chart.names("row", grid=True)
    spec = (
        chart.over(name)
        .mark_point(size=90, filled=True, opacity=1)
        .encode(
            y=y,
            x=chart.log_x("value", unit, title, chart.powers(rows["value"].to_pylist())),
            color=alt.Color("series:N", title=None, scale=alt.Scale(domain=series, range=colours)),
            shape=alt.Shape("series:N", title=None, scale=alt.Scale(domain=series, range=shapes)),
            tooltip=["row:N", "series:N", chart.tip("value", unit)],
        )
    )
    return Chart(about, spec, {name: rows}, height=24 * len(set(rows["row"].to_pylist())) + 10)


def span(name: str, row: dict[str, Any], about: str, *, unit: str, title: str | None = None) -> Chart:
    """From `least` to `greatest`, with the `median` marked."""
    rows = pa.table({key: pa.array([row[key]], pa.float64()) for key in ("least", "median", "greatest")})
    x = alt.X("least:Q", axis=chart.axis(unit, title, tickCount=5), scale=alt.Scale(zero=True))
    tip = [chart.tip(key, unit) for key in rows.column_names]
    bar = chart.over(name).mark_bar(color=theme.ONE, height=8).encode(x=x, x2="greatest:Q", tooltip=tip)
    mark = chart.over(name).mark_point(size=90, filled=True, color=theme.OTHER, opacity=1, stroke="white")
    spec = alt.layer(bar, mark.encode(x="median:Q", tooltip=tip))
    return Chart(about + "; the dot is the median", spec, {name: rows}, height=36, is_small=True)
