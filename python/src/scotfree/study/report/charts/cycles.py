"""F20: the cycle tax."""

from __future__ import annotations

import pyarrow as pa

from scotfree.study.figures.result import Result, Row
from scotfree.study.report.charts import plain
from scotfree.study.report.charts.chart import Chart
from scotfree.study.report.charts.published import rows as published_rows

_SERVICES_MAX = 12


def _tax(result: Result) -> list[Chart]:
    published = published_rows(result)
    rows = sorted(result.tables["fleet"].to_pylist(), key=lambda row: -row["share"])
    names = [_spoken(row["category"]) for row in rows]
    table = pa.table(
        {
            "row": pa.array(names, pa.string()),
            "value": pa.array([row["share"] for row in rows], pa.float64()),
            "published": pa.array([published.get(Row(row["category"])) for row in rows], pa.float64()),
        }
    )
    made = [plain.shares("f20", table, "Processor time by what it is spent on", title="of processor time")]
    return made + _services(result.tables["services"], names)


def _services(services: pa.Table, categories: list[str]) -> list[Chart]:
    rows = [row for row in services.to_pylist() if row["service"]]
    heaviest: dict[str, float] = {}
    for row in rows:
        heaviest[row["service"]] = heaviest.get(row["service"], 0.0) + row["weight"]
    shown = sorted(heaviest, key=lambda service: -heaviest[service])[:_SERVICES_MAX]
    if len(shown) < 2:
        return []
    table = pa.Table.from_pylist(
        [
            {"row": row["service"], "series": _spoken(row["category"]), "value": row["share"]}
            for row in rows
            if row["service"] in shown
        ]
    )
    about = "Processor time of each service by what it is spent on, those with most of it first"
    return [
        plain.stacked("f20-services", table, about, shown, categories, title="of the service's processor time")
    ]


def _spoken(category: str) -> str:
    return category.replace("_", " ").replace("rpc", "RPC")


DRAW = {"F20": _tax}
