"""Calls that all stand for equally many have the quantiles that they have without weights (R6, R7)."""

from __future__ import annotations

from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from scotfree.study import schema
from scotfree.study.analysis import quantiles
from scotfree.study.analysis.quantiles import column

# Calls kept with a probability of 0.3, 0.7, 0.9: sums of these are rounded.
WEIGHTS = (1 / 0.3, 1 / 0.7, 1 / 0.9, 0.1)
COUNTS = (100, 200, 2_000, 10_000)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("count", COUNTS)
def test_a_weight_of_all_calls_moves_no_quantile(weight: float, count: int) -> None:
    engine = ibis.duckdb.connect()
    values = _table(
        engine, "calls", value=np.random.default_rng(1).permutation(count) + 1, weight=[weight] * count
    )
    ranks = {column(p): -(-count * round(p * 100) // 100) for p in schema.QUANTILES}
    found = quantiles.weighted(values, ["method_id"], schema.QUANTILES)
    assert _row(engine, found, list(ranks)) == ranks
    limits = _table(engine, "limits", **{column(p): [p] for p in schema.QUANTILES})
    assert _row(engine, quantiles.at(values, limits, list(ranks)), list(ranks)) == ranks


def _table(engine: Any, name: str, **columns: Any) -> Any:
    count = len(next(iter(columns.values())))
    engine.con.register(name, pa.table({"method_id": np.zeros(count, np.int32), **columns}))
    return engine.table(name)


def _row(engine: Any, expression: Any, names: list[str]) -> dict[str, Any]:
    found: list[dict[str, Any]] = engine.to_pyarrow(expression.select(names)).to_pylist()
    assert len(found) == 1
    return found[0]
