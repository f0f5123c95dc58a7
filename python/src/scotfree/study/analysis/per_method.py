"""Quantiles of a quantity per method (F2, F4 to F7, F11 to F13, F21)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import quantiles, quantities
from scotfree.study.engine import Engine


def exact(engine: Engine, calls: Any, quantity: str) -> pa.Table:
    """From every value, in the order of the median."""
    if quantities.is_of_tree(quantity):
        found = calls.select("method_id", "weight", value=calls[quantity])
    else:
        found = quantiles.values(calls, quantity)
    table = quantiles.weighted(found, ["method_id"], schema.QUANTILES).mutate(is_exact=True)
    return named(engine, table.filter(table.samples >= schema.SAMPLES_MIN))


def named(engine: Engine, table: Any) -> pa.Table:
    """With the names of methods, in the order of the median."""
    joined = table.inner_join(engine.table("methods"), "method_id")
    ps = [quantiles.column(p) for p in schema.QUANTILES]
    shown = joined.select("method_id", "service", "method", "samples", "weight", "effective_n", *ps, "is_exact")
    return engine.arrow(shown.order_by([shown.p50, shown.method_id]))
