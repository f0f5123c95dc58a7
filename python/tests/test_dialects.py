"""The expressions of the study compile to the SQL of engines that were not run here: ClickHouse and BigQuery.

That the SQL parses in its own dialect is all that is shown; no such engine was asked. Kernels (trees, histograms,
what-if) are functions over partitions and have no SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import ibis
import pyarrow as pa
import pytest
import sqlglot

from scotfree.study import schema
from scotfree.study.analysis import counts, quantiles, quantities
from scotfree.study.engine.relations import plain

NOT_RUN = ("clickhouse", "bigquery")
# Ibis knows no bytes of fixed length.
_ID = schema.SPAN.get_field_index("trace_id")
TABLES = {"span": plain(schema.SPAN).set(_ID, pa.field("trace_id", pa.binary())), "methods": schema.METHOD}
LIMITS = pa.schema([("method_id", pa.int32()), ("p50_low", pa.float64())])
BINS = pa.schema([("method_id", pa.int32()), *((name, pa.float64()) for name in ("low", "high", "below", "all"))])


class Written:
    """An engine that keeps the expression it is asked to compute."""

    expression: Any = None

    def table(self, name: str) -> Any:
        return ibis.table(ibis.Schema.from_pyarrow(TABLES[name]), name=name)

    def arrow(self, expression: Any) -> pa.Table:
        self.expression = expression
        return pa.table({})


def _counts() -> Any:
    engine = Written()
    counts.per_method(engine)  # type: ignore[arg-type]
    return engine.expression


def _values(quantity: str) -> Any:
    return quantiles.values(Written().table("span"), quantity)


def _limits(kind: pa.Schema) -> Any:
    return ibis.table(ibis.Schema.from_pyarrow(kind), name="limits")


def _eight(quantity: str) -> Any:
    return quantiles.weighted(_values(quantity), ["method_id"], schema.QUANTILES)


EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "counts": _counts,
    **{name: partial(_eight, name) for name in quantities.NAMED},
    "at": lambda: quantiles.at(_values("total"), _limits(LIMITS), ["p50_low"]),
    "within": lambda: quantiles.within(_values("total"), _limits(BINS), 0.95),
}


@pytest.mark.parametrize("dialect", NOT_RUN)
@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_compiles(name: str, dialect: str) -> None:
    sql = ibis.to_sql(EXPRESSIONS[name](), dialect=dialect)
    statement = sqlglot.parse_one(str(sql), dialect=dialect)
    tables = {table.name for table in statement.find_all(sqlglot.exp.Table)}
    assert "span" in tables
    assert statement.find(sqlglot.exp.Group)
