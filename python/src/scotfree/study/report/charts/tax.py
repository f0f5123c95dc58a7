"""F9, F10 and section 5.2: what is known of the nine stages, and what the tax is made of."""

from __future__ import annotations

from typing import Any

import altair as alt
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.figures.result import Result, Row
from scotfree.study.figures.words import spoken
from scotfree.study.report.charts import chart, plain, stages, theme
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.published import rows as published_rows

# The kinds of stages have the colour of one of theirs.
_KINDS = {"tax": "#5c616b", "wire": "#2b62cf", "stack": "#1c6b4b", "queue": "#f0551a"}
_SCOPES = {"all": "all calls", "tail": "own P95 tail", "global_tail": "P95 tail of all"}
_HOWS = {"measured": "#1c6b4b", "derived": "#84dfb4", "lumped": "#efbd52", "missing": "#9f9f9f"}
# Of each stage the lane: client (0), network (1) or server (2); and from which to which of twenty steps.
_LANES = (
    ("client_send_queue", 0, 0, 2),
    ("request_stack", 1, 2, 4),
    ("request_wire", 1, 4, 6),
    ("server_recv_queue", 2, 6, 8),
    ("server_app", 2, 8, 12),
    ("server_send_queue", 2, 12, 14),
    ("response_stack", 1, 14, 16),
    ("response_wire", 1, 16, 18),
    ("client_recv_queue", 0, 18, 20),
)


def _components(result: Result) -> list[Chart]:
    return [_schema(), _known(result.tables["stages"])]


def _schema() -> Chart:
    lanes = ["client", "network and stacks", "server"]
    rows = pa.Table.from_pylist(
        [
            {"stage": spoken(stage), "lane": lanes[lane], "from": start, "to": end, "number": number + 1}
            | {"ink": theme.ink_on(theme.STAGE_COLOURS[stage])}
            for number, (stage, lane, start, end) in enumerate(_LANES)
        ]
    )
    y = chart.names("lane", lanes, longest=16)
    base = chart.over("f9-schema").encode(
        x=alt.X("from:Q", axis=None, scale=alt.Scale(domain=[0, 20], nice=False)),
        x2="to:Q",
        y=y,
        tooltip="stage:N",
    )
    boxes = base.mark_bar(height={"band": 0.7}, stroke="white", strokeWidth=1).encode(color=stages.colour())
    middle = chart.over("f9-schema").transform_calculate(middle="(datum.from + datum.to) / 2")
    written = alt.Color("ink:N", scale=None)
    numbers = middle.mark_text(fontWeight="bold").encode(x="middle:Q", y=y, text="number:N", color=written)
    about = "The nine stages in the order in which a call passes them, from left to right (not to scale)"
    return Chart(about, alt.layer(boxes, numbers), {"f9-schema": rows}, height=150)


def _known(table: pa.Table) -> Chart:
    rows = [
        {
            "stage": spoken(row["stage"]),
            "how": row["how"],
            "calls": row["calls"],
            "place": list(_HOWS).index(row["how"]),
        }
        for row in table.to_pylist()
    ]
    order = [spoken(stage) for stage in schema.STAGES]
    spec = (
        chart.over("f9-known")
        .mark_bar(height={"band": 0.72})
        .encode(
            y=chart.names("stage", order),
            x=alt.X("calls:Q", stack="normalize", axis=chart.axis("share", "calls")),
            color=alt.Color(
                "how:N",
                title=None,
                scale=alt.Scale(domain=list(_HOWS), range=list(_HOWS.values())),
                sort=list(_HOWS),
            ),
            order="place:Q",
            tooltip=["stage:N", "how:N", alt.Tooltip("calls:Q", format=",.0f")],
        )
    )
    about = "Share of your calls of which each stage is measured, derived, known only in a sum, or missing"
    return Chart(about, spec, {"f9-known": pa.Table.from_pylist(rows)}, height=230)


def _tax(result: Result) -> list[Chart]:
    shares = result.tables["shares"].to_pylist()
    return [_parts(shares, published_rows(result)), _stages(shares)]


def _parts(shares: list[dict[str, object]], published: dict[Row, float]) -> Chart:
    rows = [
        {
            "part": row["part"],
            "scope": _SCOPES[str(row["scope"])],
            "share": row["share"],
            "published": published.get(Row(str(row["part"]), str(row["scope"]))),
        }
        for row in shares
        if row["part"] in _KINDS and row["share"] is not None
    ]
    table = pa.Table.from_pylist(rows)
    y = chart.names("scope", list(_SCOPES.values()))
    x = alt.X("share:Q", axis=chart.axis("share", "of the calls' time"))
    offset = alt.YOffset("part:N", sort=list(_KINDS))
    colour = alt.Color(
        "part:N", title=None, sort=list(_KINDS), scale=alt.Scale(domain=list(_KINDS), range=list(_KINDS.values()))
    )
    tip: list[Any] = [
        "scope:N",
        "part:N",
        chart.tip("share", "share"),
        chart.tip("published", "share"),
    ]
    base = chart.over("f10-parts").encode(y=y, yOffset=offset, tooltip=tip)
    bars = base.mark_bar().encode(x=x, color=colour)
    marks = chart.published("f10-parts").encode(y=y, yOffset=offset, tooltip=tip, x="published:Q")
    about = "Tax and its parts as shares of the time of all calls and of the slowest; diamonds are published"
    return Chart(about, alt.layer(bars, marks), {"f10-parts": table}, height=260)


def _stages(shares: list[dict[str, object]]) -> Chart:
    known = {"app" if stage == "server_app" else stage: spoken(stage) for stage in schema.STAGES}
    rows: dict[str, dict[str, object]] = {}
    for row in shares:
        if row["part"] in known:
            scope = _SCOPES[str(row["scope"])]
            rows.setdefault(scope, {"scope": scope})[known[str(row["part"])]] = row["share"]
    table = pa.Table.from_pylist(list(rows.values()))
    about = "Where the time of calls is, stage by stage"
    return stages.bars("f10-stages", table, "scope", about, unit="share", title="of the calls' time")


def _queue(result: Result) -> list[Chart]:
    shares = {row["part"]: row["share"] for row in result.tables["queue"].to_pylist()}
    rows = pa.table(
        {
            "row": ["queues"],
            "value": pa.array([shares["queue"] / shares["tax"]], pa.float64()),
            "published": pa.array([published_rows(result).get(Row("queue"))], pa.float64()),
        }
    )
    return [plain.shares("s52", rows, "Queues as a share of the tax", title="of the tax")]


DRAW = {"F9": _components, "F10": _tax, "S5.2": _queue}
