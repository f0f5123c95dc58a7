"""The two charts of every per-method figure: bands of quantiles over methods, and each quantile's distribution."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import altair as alt
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.report import bins
from scotfree.study.report.charts import chart, theme
from scotfree.study.report.charts.chart import Chart

_NAMES = [column(p) for p in schema.QUANTILES]
_SPOKEN = [f"P{round(p * 100)}" for p in schema.QUANTILES]
_TICKS_MAX = 10
_AROUND_ONE = [0.5, 1.5]
_BANDS = [f"{low} to {high}" for low, high in pairwise(_SPOKEN)]
_BAND_COLOURS = list(theme.QUANTILE_COLOURS[:3]) + list(theme.QUANTILE_COLOURS[4:])


@dataclass(frozen=True)
class Point:
    """A published point of a distribution: this share of methods has a p-quantile that does not exceed it."""

    p: float
    share: float
    value: float


@dataclass(frozen=True)
class Quantity:
    """What the quantiles are of."""

    # For the data's names: unique in the page.
    key: str
    title: str
    # A key of `chart.LABELS`.
    unit: str
    # In what order the methods stand.
    order: str = "methods, by their median"
    # log, symlog (logarithmic but for 0) or linear.
    scale: str = "log"

    def axis(self, *columns: Iterable[float | None]) -> Axis:
        """The quantity's axis for these values."""
        most = max((value for column_ in columns for value in column_ if value is not None), default=0.0)
        return Axis(self, chart.powers(*columns) if self.scale == "log" else None, is_flat=most < 1)


@dataclass(frozen=True)
class Axis:
    """An axis of a quantity, the same for all layers of a chart."""

    quantity: Quantity
    domain: tuple[list[float], list[float]] | None
    # Whether nothing reaches 1: an axis would have no length.
    is_flat: bool = False

    def up(self, field: str) -> alt.Y:
        """As the vertical one."""
        if self.domain:
            return chart.log_y(field, self.quantity.unit, self.quantity.title, self.domain)
        return alt.Y(f"{field}:Q", axis=self._axis(), scale=self._scale())

    def across(self, field: str) -> alt.X:
        """As the horizontal one."""
        if self.domain:
            return chart.log_x(field, self.quantity.unit, self.quantity.title, self.domain)
        return alt.X(f"{field}:Q", axis=self._axis(), scale=self._scale())

    def _axis(self) -> alt.Axis:
        more: dict[str, Any] = (
            {"values": [0, 1, 10, 100, 1e3, 1e4, 1e5, 1e6]} if self.quantity.scale == "symlog" else {}
        )
        if self.quantity.unit == "count":
            # There is no half of a call.
            more["tickMinStep"] = 1
        return chart.axis(self.quantity.unit, self.quantity.title, **more)

    def _scale(self) -> alt.Scale:
        domain = [0, 1] if self.is_flat and self.quantity.unit == "count" else alt.Undefined
        return alt.Scale(type="symlog" if self.quantity.scale == "symlog" else alt.Undefined, domain=domain)


def charts(methods: pa.Table, quantity: Quantity, points: Sequence[Point] = ()) -> list[Chart]:
    """Both charts."""
    if methods.num_rows == 0:
        return []
    return [bands(methods, quantity), distributions(methods, quantity, points)]


def bands(methods: pa.Table, quantity: Quantity) -> Chart:
    """x: methods in the order of the table; y: the quantity; a band from each quantile to the next."""
    binned = bins.by_rank(methods, _NAMES)
    if binned.num_rows == 1:
        binned = _widened(binned)
    if quantity.scale == "log":
        binned = chart.positive(binned, _NAMES)
    name = f"{quantity.key}-ranked"
    axis = quantity.axis(*(binned[field].to_pylist() for field in _NAMES))
    # The bands are made of their edges in the page: eight columns are less than seven times as many rows.
    colours = alt.Scale(domain=_BANDS, range=_BAND_COLOURS)
    layers: list[alt.Chart] = []
    for low, high, band in zip(_NAMES, _NAMES[1:], _BANDS, strict=False):
        layers.append(
            chart.over(name)
            .transform_calculate(band=f"'{band}'")
            .mark_area(interpolate="linear", opacity=0.9)
            .encode(
                x=_rank(quantity, binned),
                y=axis.up(low),
                y2=alt.Y2(high),
                color=alt.Color("band:N", scale=colours, title=None),
            )
        )
    layers += [_median(name, quantity, binned, axis), _pointer(name, quantity, binned)]
    about = f"{quantity.title.capitalize()} of each method: bands between its quantiles, the line is the median"
    if methods.num_rows > binned.num_rows:
        about += f"; {methods.num_rows:,} methods in {binned.num_rows} columns, each the middle of its own"
    return Chart(about, alt.layer(*layers).resolve_scale(color="shared"), {name: binned})


def _widened(one: pa.Table) -> pa.Table:
    """A single method around its rank: an area over one point is not seen."""
    both = pa.concat_tables([one, one])
    return both.set_column(both.column_names.index("rank"), "rank", pa.array(_AROUND_ONE))


def _rank(quantity: Quantity, binned: pa.Table) -> alt.X:
    last = int(binned["rank_to"][-1].as_py())
    scale = alt.Scale(domain=[1, last] if last > 1 else _AROUND_ONE, nice=False)
    # Of few methods each has its tick, and no tick stands between two.
    more = {"values": list(range(1, last + 1))} if last <= _TICKS_MAX else {}
    return alt.X(
        "rank:Q", scale=scale, axis=chart.axis("count", quantity.order, tickMinStep=1, format="d", **more)
    )


def _median(name: str, quantity: Quantity, binned: pa.Table, axis: Axis) -> Any:
    line = chart.over(name).mark_line(strokeWidth=1.5, color="#ffffff")
    return line.encode(x=_rank(quantity, binned), y=axis.up("p50"))


def _pointer(name: str, quantity: Quantity, binned: pa.Table) -> Any:
    """A rule under the pointer that names the method and its quantiles."""
    near = alt.selection_point(on="pointerover", clear="pointerout", empty=False)
    shown = [alt.Tooltip("service:N"), alt.Tooltip("method:N"), alt.Tooltip("rank:Q")]
    shown += [chart.tip(field, quantity.unit, said) for field, said in zip(_NAMES, _SPOKEN, strict=True)]
    opacity = alt.condition(near, alt.value(0.6), alt.value(0))
    rule = chart.over(name).mark_rule(strokeWidth=3)
    return rule.encode(x=_rank(quantity, binned), opacity=opacity, tooltip=shown).add_params(near)


def distributions(methods: pa.Table, quantity: Quantity, points: Sequence[Point]) -> Chart:
    """x: the quantity; y: the share of methods whose quantile does not exceed it; a line for each quantile."""
    name, marks = f"{quantity.key}-over-methods", f"{quantity.key}-published"
    rows = _curves(methods)
    if quantity.scale == "log":
        rows = chart.positive(rows, ["value"])
    published = _published(points)
    x = quantity.axis(rows["value"].to_pylist(), published["value"].to_pylist()).across("value")
    colour = alt.Scale(domain=_SPOKEN, range=list(theme.QUANTILE_COLOURS))
    y = alt.Y("share:Q", axis=chart.axis("share", "methods that do not exceed it"), scale=alt.Scale(domain=[0, 1]))
    legend = alt.Legend(title=None, symbolType="stroke", symbolStrokeWidth=3)
    quantile = alt.Color("quantile:N", scale=colour, legend=legend)
    lines = chart.over(name).mark_line(interpolate="step-after", strokeWidth=1.6, clip=True)
    # Of a line under the pointer its first point is known and no other, so no value is said.
    drawn: alt.Chart | alt.LayerChart = lines.encode(x=x, y=y, color=quantile, tooltip=["quantile:N"])
    about = f"{quantity.title.capitalize()}: share of methods whose quantile does not exceed a value"
    if not points:
        return Chart(about, drawn, {name: rows})
    dots = chart.over(marks).mark_point(
        shape="diamond", size=90, filled=True, opacity=1, strokeWidth=1, stroke="#ffffff"
    )
    tip = ["published:N", "quantile:N", chart.tip("value", quantity.unit), chart.tip("share", "share", "methods")]
    dots = dots.encode(x=x, y=y, color=quantile, tooltip=tip)
    return Chart(about + "; diamonds are published", alt.layer(drawn, dots), {name: rows, marks: published})


def _curves(methods: pa.Table) -> pa.Table:
    parts = []
    for field, said in zip(_NAMES, _SPOKEN, strict=True):
        curve = _from_none(bins.distribution(methods[field], 120))
        parts.append(curve.append_column("quantile", pa.array([said] * curve.num_rows, pa.string())))
    return pa.concat_tables(parts)


def _from_none(curve: pa.Table) -> pa.Table:
    """A distribution with its first step, without which that of a single method is one point and not seen."""
    first = curve.slice(0, 1)
    return pa.concat_tables([first.set_column(1, "share", pa.array([0.0] * first.num_rows)), curve])


def _published(points: Sequence[Point]) -> pa.Table:
    return pa.table(
        {
            "quantile": pa.array([f"P{round(point.p * 100)}" for point in points], pa.string()),
            "share": pa.array([point.share for point in points], pa.float64()),
            "value": pa.array([point.value for point in points], pa.float64()),
            "published": pa.array(["published"] * len(points), pa.string()),
        }
    )
