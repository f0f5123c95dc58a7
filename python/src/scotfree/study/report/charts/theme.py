"""Colours and type of all charts, for a light page and a dark one.

A stage has one colour everywhere. Kinds of stages share a hue and differ in lightness: wires blue, stacks green,
queues from yellow to violet; the application is grey, for it is no tax. They are told apart by who sees fewer
colours, which a test computes.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from scotfree.study import schema
from scotfree.study.figures.words import spoken

STAGE_COLOURS = dict(
    zip(
        schema.STAGES,
        (
            "#efbd52",  # client_send_queue
            "#1c6b4b",  # request_stack
            "#2b62cf",  # request_wire
            "#f0551a",  # server_recv_queue
            "#9f9f9f",  # server_app
            "#e5186c",  # server_send_queue
            "#84dfb4",  # response_stack
            "#85aefc",  # response_wire
            "#8c4a88",  # client_recv_queue
        ),
        strict=True,
    )
)
# P1 to P99.
QUANTILE_COLOURS = ("#3b5ba5", "#3b7fb8", "#419fb3", "#52b594", "#98c470", "#d8c350", "#eb9c3d", "#d95f3a")
# Of one series, of a second beside it, of what is published.
ONE, OTHER, PUBLISHED = "#3b7fb8", "#e2711d", "#c2334d"
# Unordered classes: services, categories, clusters.
CLASSES = ("#3b7fb8", "#e2711d", "#16826a", "#c23b6e", "#7d56a8", "#e3bf2f", "#79cdb0", "#8c6d4f", "#9d9d9d")
# Luminance below which white is read better than the ink.
_DARK = 0.2
_FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


def stage_scale(stages: tuple[str, ...] = schema.STAGES) -> alt.Scale:
    """The colours of stages, under the names that people read."""
    return alt.Scale(domain=[spoken(stage) for stage in stages], range=[STAGE_COLOURS[stage] for stage in stages])


def ink_on(ground: str) -> str:
    """What is read best on that colour: the light page's ink, or white."""
    red, green, blue = (int(ground[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return "#1d1f23" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > _DARK else "#ffffff"


def config(ink: str, faint: str, grid: str) -> dict[str, Any]:
    """Vega-Lite's configuration for a page of that ink on that ground."""
    return {
        "background": "transparent",
        # Tooltips say their unit by the page's own `quantity`.
        "customFormatTypes": True,
        "font": _FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": faint,
            "titleColor": faint,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "gridColor": grid,
            "domainColor": grid,
            "tickColor": grid,
            "labelOverlap": True,
            "labelSeparation": 6,
            "labelLimit": 260,
        },
        "axisX": {"grid": False, "titlePadding": 8},
        "legend": {
            "labelColor": ink,
            "titleColor": faint,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "orient": "top",
            "symbolType": "square",
            "symbolOpacity": 1,
            "labelLimit": 220,
        },
        "text": {"color": ink, "fontSize": 11},
        "rule": {"color": faint},
        "title": {"color": ink, "fontSize": 12, "fontWeight": 600, "anchor": "start"},
    }


THEMES = {
    "light": config("#1d1f23", "#5c616b", "#e4e6ea"),
    "dark": config("#e8e9ec", "#a2a7b1", "#33373f"),
}
