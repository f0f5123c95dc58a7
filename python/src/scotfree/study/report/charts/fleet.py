"""F1, F8, F18, F22, F23, the tables, and section 2.1: services, load, errors, time."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis.selection import plain_name
from scotfree.study.figures.errors import plain_status
from scotfree.study.figures.exogenous import SPOKEN
from scotfree.study.figures.result import Result, Row
from scotfree.study.figures.words import called, percent
from scotfree.study.report.charts import plain
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.published import rows as published_rows

_DAY_NS = 86_400_000_000_000
_YEAR_DAYS = 365.25
_BY = {"calls": "of all calls", "bytes": "of all bytes", "cycles": "of all cycles"}
# How axes say the variables' values, and what is said beside these.
_UNITS = {
    "cpu_util": ("share", None),
    "mem_bw": ("ratio", "GB/s"),
    "long_wakeup_rate": ("share", None),
    "cpi": ("ratio", None),
}


def _growth(result: Result) -> list[Chart]:
    days = result.tables["days"]
    day = days["day"].to_numpy().astype(float)
    published = published_rows(result).get(Row("year"))
    picks = np.unique(np.linspace(0, len(day) - 1, min(len(day), 350)).astype(int))
    series = {"yours": days["ratio"].to_numpy()[picks]}
    if published is not None:
        series[f"published, {percent(published)} a year"] = (1 + published) ** ((day[picks] - day[0]) / _YEAR_DAYS)
    rows = pa.concat_tables(
        [
            pa.table(
                {"series": pa.array([name] * len(picks), pa.string()), "x": day[picks] * _DAY_NS, "y": values}
            )
            for name, values in series.items()
        ]
    )
    axes = plain.Axes("", "requests per cycle, first day = 1", "ratio", x_unit="time", is_zero=False)
    return [plain.lines("f1", rows, "Requests per cycle of each day, as a multiple of the first day's", axes)]


def _services(result: Result) -> list[Chart]:
    published = published_rows(result)
    made = []
    for by, title in _BY.items():
        own = [row for row in result.tables["shares"].to_pylist() if row["by"] == by]
        if own:
            rows = pa.table(
                {
                    "row": pa.array([row["service"] for row in own], pa.string()),
                    "value": pa.array([row["share"] for row in own], pa.float64()),
                    "published": pa.array(
                        [published.get(Row(plain_name(row["service"]), by)) for row in own], pa.float64()
                    ),
                }
            )
            made.append(plain.shares(f"f8-{by}", rows, f"Services by {by}", title=title))
    return made


def _day(result: Result) -> list[Chart]:
    table = result.tables["day"].to_pylist()
    made = []
    over = _over(result.tables["day"]["start_ns"])
    for column, spoken in {"p95_ns": "P95", **SPOKEN}.items():
        unit, beside = _UNITS.get(column, ("ns", None))
        rows = [
            {"series": f"{row['cluster']} ({row['which']})", "x": float(row["start_ns"]), "y": row[column]}
            for row in table
            if row[column] is not None
        ]
        if rows:
            axes = plain.Axes("", f"{spoken}, {beside}" if beside else spoken, unit, x_unit="time")
            about = f"{spoken[0].upper()}{spoken[1:]} by half hours, {over}"
            made.append(plain.lines(f"f18-{column}", pa.Table.from_pylist(rows), about, axes, is_small=True))
    return made


def _over(start_ns: pa.ChunkedArray) -> str:
    ends = (int(of(start_ns).as_py()) // 1_000_000_000 for of in (pc.min, pc.max))
    first, last = (dt.datetime.fromtimestamp(end, dt.UTC) for end in ends)
    until = last.strftime("%H:%M" if first.date() == last.date() else "%Y-%m-%d %H:%M")
    return f"{first:%Y-%m-%d %H:%M} to {until} UTC"


def _load(result: Result) -> list[Chart]:
    rows = [
        {"series": row["service"], "dashed": row["over"] != "clusters", "x": row["load"], "y": row["cdf"]}
        for row in result.tables["load"].to_pylist()
    ]
    axes = plain.Axes(
        "processors used, of the limit", "clusters or machines", "share", x_unit="share", is_step=True
    )
    about = "Share of clusters (solid), and of the machines of one cluster (dashed), up to a load"
    return [plain.lines("f22", pa.Table.from_pylist(rows), about, axes)]


def _errors(result: Result) -> list[Chart]:
    published = published_rows(result)
    series = (("share", "calls"), ("cycle_share", "cycles"))
    rows = [
        {
            "row": row["status"],
            "series": name,
            "value": row[column],
            # Of several spellings of one status the first is marked.
            "published": published.pop(Row(plain_status(row["status"]), column), None),
        }
        for row in result.tables["errors"].to_pylist()
        for column, name in series
    ]
    about = "Errors by how often they are, and by the cycles that they waste"
    return [plain.grouped("f23", pa.Table.from_pylist(rows, schema=_GROUPED), about, title="of all errors")]


_GROUPED = pa.schema(
    [("row", pa.string()), ("series", pa.string()), ("value", pa.float64()), ("published", pa.float64())]
)


def _selected(result: Result) -> list[Chart]:
    sizes = {plain_name(row["service"]): float(row["bytes"]) for row in result.tables["published"].to_pylist()}
    rows: list[dict[str, Any]] = []
    for row in result.tables["services"].to_pylist():
        name = called(row["service"], row["method"])
        found = {"request": row["request_bytes"], "response": row["response_bytes"]}
        found["published"] = sizes.get(plain_name(row["service"]))
        rows += [{"row": name, "series": key, "value": value} for key, value in found.items() if value]
    about = "Median sizes of request and response of the selected methods, and the published size"
    made = [plain.dots("t1", pa.Table.from_pylist(rows), about, title="size", unit="bytes")] if rows else []
    return [*made, *_time(result.tables["services"])]


def _time(services: pa.Table) -> list[Chart]:
    names = [called(row["service"], row["method"]) for row in services.to_pylist()]
    rows = pa.table({"row": pa.array(names, pa.string()), "value": services["time_share"]})
    return [
        plain.shares(
            "t1-time", rows, "How much of all calls' time they take, whoever calls them", title="of the time"
        )
    ]


def _variables(result: Result) -> list[Chart]:
    return [
        plain.span(
            f"t2-{row['variable']}",
            row,
            f"{SPOKEN[row['variable']].capitalize()} ({row['variable']}): {row['meaning']}",
            unit=_UNITS[row["variable"]][0],
            title=_UNITS[row["variable"]][1],
        )
        for row in result.tables["variables"].to_pylist()
        if row["median"] is not None
    ]


def _extent(result: Result) -> list[Chart]:
    published = published_rows(result)
    rows = [
        {"row": row["what"].replace("_", " "), "series": series, "value": float(value)}
        for row in result.tables["extent"].to_pylist()
        if not row["what"].startswith("sampling")
        for series, value in (("yours", row["value"]), ("published", published.get(Row(row["what"]))))
        if value
    ]
    return [
        plain.dots("s21", pa.Table.from_pylist(rows), "How much data there is", title="how many", unit="count")
    ]


DRAW = {
    "F1": _growth,
    "F8": _services,
    "F18": _day,
    "F22": _load,
    "F23": _errors,
    "T1": _selected,
    "T2": _variables,
    "S2.1": _extent,
}
