"""Charts of the nine stages: each in its colour, in the order in which a call passes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.figures.words import spoken
from scotfree.study.report.charts import chart, theme
from scotfree.study.report.charts.chart import Chart

NAMES = [spoken(stage) for stage in schema.STAGES]


def wide(table: pa.Table, keep: Sequence[str], suffix: str = "_ns") -> pa.Table:
    """These columns, and those of the stages under the names that people read: the page folds them into rows."""
    stages = {spoken(stage): table[stage + suffix] for stage in schema.STAGES}
    return pa.table({**{name: table[name] for name in keep}, **stages})


def folded(name: str, only: str | None = None) -> Any:
    """A chart over `stage`, `value` and `place` (the call's order) of a wide table; `only` is a filter."""
    drawn: Any = chart.over(name)
    if only:
        drawn = drawn.transform_filter(only)
    place = f"indexof({NAMES!r}, datum.stage)"
    return drawn.transform_fold(NAMES, as_=["stage", "value"]).transform_calculate(place=place)


def colour(*, with_legend: bool = True) -> alt.Color:
    """The encoding of a stage's colour."""
    legend = alt.Legend() if with_legend else None
    return alt.Color("stage:N", scale=theme.stage_scale(), title=None, sort=None, legend=legend)


def bars(name: str, rows: pa.Table, by: str, about: str, *, unit: str = "ns", title: str) -> Chart:
    """Stacked bars, one for each row, in their order."""
    scale = alt.Scale(domain=[0, 1], clamp=True) if unit == "share" else alt.Scale()
    spec = (
        folded(name)
        .mark_bar(height={"band": 0.8})
        .encode(
            y=chart.names(by, longest=14),
            x=alt.X("value:Q", stack="zero", axis=chart.axis(unit, title), scale=scale),
            color=colour(),
            order=alt.Order("place:Q"),
            tooltip=[f"{by}:N", "stage:N", chart.tip("value", unit, title)],
        )
    )
    return Chart(about, spec, {name: rows}, height=max(90, 22 * rows.num_rows + 20))


def columns(name: str, only: str, rows: pa.Table, about: str, by_title: str) -> Chart:
    """Stacked columns over `order`, under `label`, of those rows of a shared table that a filter lets through."""
    spec = (
        folded(name, only)
        .mark_bar(width={"band": 0.92})
        .encode(
            x=alt.X(
                "label:O",
                sort=alt.EncodingSortField("order", op="min"),
                axis=alt.Axis(title=by_title, labelAngle=0, ticks=False),
            ),
            y=alt.Y("value:Q", stack="zero", axis=chart.axis("ns", "P95 call", tickCount=4)),
            color=colour(with_legend=False),
            order=alt.Order("place:Q"),
            tooltip=["name:N", "stage:N", chart.tip("value", "ns", "time")],
        )
    )
    return Chart(about, spec, {name: rows}, height=170, is_small=True)


def layers(name: str, only: str, rows: pa.Table, about: str, up_to: float) -> Chart:
    """F14: up the share of calls, to the right their time, one stage upon the other."""
    scale = alt.Scale(domain=[0, up_to], nice=False)
    spec = (
        folded(name, only)
        .mark_area(orient="horizontal", clip=True)
        .encode(
            x=alt.X("value:Q", stack="zero", axis=chart.axis("ns", "completion time", tickCount=4), scale=scale),
            y=alt.Y("cdf:Q", axis=chart.axis("share", "calls"), scale=alt.Scale(domain=[0, 1])),
            color=colour(with_legend=False),
            order=alt.Order("place:Q"),
            tooltip=["stage:N"],
        )
    )
    return Chart(about, spec, {name: rows}, height=200, is_small=True)


def key() -> Chart:
    """The colours of the stages, once for many small charts."""
    rows = pa.table({"stage": NAMES, "place": list(range(len(NAMES)))})
    spec = (
        chart.over("stages")
        .mark_bar(height=12, width={"band": 1})
        .encode(
            x=alt.X("place:O", axis=None, scale=alt.Scale(padding=0)),
            color=colour(),
            tooltip=["stage:N"],
        )
    )
    return Chart(
        "The colours of the stages, in the order in which a call passes them", spec, {"stages": rows}, height=14
    )
