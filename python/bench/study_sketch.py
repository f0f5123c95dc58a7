"""How far a histogram's quantile lies beside the exact one, at most, over methods and quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import data, ours
from scotfree.study import schema
from scotfree.study.analysis import sketches
from scotfree.study.analysis.quantiles import column
from scotfree.study.engine.duck import DuckEngine


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the quantity."""
    store = data.store(settings["calls"], settings["methods"])
    engine = DuckEngine(store, threads=2)
    exact = ours.quantiles(engine, arm)
    methods = exact["method_id"].to_numpy()
    wanted = np.zeros(store.read("methods").num_rows, np.uint8)
    wanted[methods] = 1
    sketch = sketches.sketch(engine, wanted, [arm])[arm]
    errors = [_error(sketch.quantile(p)[methods], exact[column(p)].to_numpy()) for p in schema.QUANTILES]
    return {"error_max_percent": 100 * max(errors), "compared": len(methods) * len(errors)}


def _error(found: Any, exact: Any) -> float:
    return float(np.max(np.abs(found - exact) / np.maximum(np.abs(exact), np.finfo(float).tiny)))
