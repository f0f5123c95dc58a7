"""F15: the matrix of what if."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.figures.result import Result
from scotfree.study.figures.words import called, spoken
from scotfree.study.report.charts import plain
from scotfree.study.report.charts.chart import Chart


def _what_if(result: Result) -> list[Chart]:
    yours = _named(result.tables["what_if"], "method")
    published = _named(result.tables["published"], "service")
    columns = [spoken(stage) for stage in schema.STAGES]
    said = "Percent of a method's P95 tail that leave it when one stage takes what it takes in the median"
    return [
        plain.matrix("f15", yours, f"{said}: yours", columns=columns),
        plain.matrix("f15-published", published, f"{said}: published", columns=columns),
    ]


def _named(table: pa.Table, name: str) -> pa.Table:
    """The rows' names, their stages in words, their shares."""
    who = table[name].to_pylist()
    if "service" in table.column_names and name != "service":
        who = [called(service, method) for service, method in zip(table["service"].to_pylist(), who, strict=True)]
    stage = pa.array([spoken(stage) for stage in table["stage"].to_pylist()], pa.string())
    return pa.table(
        {"row": pa.array(who, pa.string()), "column": stage, "value": pc.multiply(table["leaves"], 100.0)}
    )


DRAW = {"F15": _what_if}
