"""The aggregates of the study by plain loops and numpy over all rows, as they are defined; for small stores."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.store import Store

Row = dict[str, Any]


def rows(store: Store) -> list[Row]:
    """Every call."""
    found: list[Row] = pa.concat_tables(list(store.iter_partitions(schema.SPAN.names))).to_pylist()
    return found


def weight(row: Row) -> float:
    """How many calls it stands for."""
    return 1.0 if row["sample_weight"] is None else float(row["sample_weight"])


def nearest_rank(values: Any, weights: Any, p: float) -> float:
    """The smallest value whose cumulative weight reaches p of all."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(np.asarray(weights)[order]) * 10_000 >= round(p * 10_000) * np.sum(weights)
    return float(np.asarray(values)[order][np.argmax(reached)])


def samples(calls: list[Row], quantity: Any) -> dict[int, tuple[list[float], list[float]]]:
    """Values and weights per method of calls that succeeded; `quantity` gives None where it is not known."""
    found: dict[int, tuple[list[float], list[float]]] = {}
    for row in calls:
        value = quantity(row) if row["status"] == schema.STATUS_OK else None
        if value is not None:
            values, weights = found.setdefault(row["method_id"], ([], []))
            values.append(value)
            weights.append(weight(row))
    return found


def stages(names: Collection[str]) -> Any:
    """The sum of stages of a row."""
    return lambda row: _sum([row[f"{name}_ns"] for name in names])


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def places(calls: list[Row]) -> list[tuple[int, int]]:
    """Descendants and ancestors of each call, by walking up from each; of trees without rings."""
    index = {(row["trace_id"], row["span_id"]): at for at, row in enumerate(calls)}
    below, above = [0] * len(calls), [0] * len(calls)
    for at, row in enumerate(calls):
        up = index.get((row["trace_id"], row["parent_id"]))
        while up is not None:
            above[at] += 1
            below[up] += 1
            up = index.get((row["trace_id"], calls[up]["parent_id"]))
    return list(zip(below, above, strict=True))


def what_if(calls: list[Row], names: Collection[str]) -> dict[int, tuple[float, float]]:
    """Per method with enough samples: the weight of the tail, and of those that leave it (F15)."""
    of_total = samples(calls, lambda row: row["total_ns"])
    of_stages = samples(calls, stages(names))
    found = {}
    for method, (values, weights) in of_total.items():
        if min(len(values), len(of_stages[method][0])) >= schema.SAMPLES_MIN:
            bound = nearest_rank(values, weights, 0.95)
            median = nearest_rank(*of_stages[method], 0.5)
            found[method] = _tail(calls, method, bound, median, stages(names))
    return found


def _tail(calls: list[Row], method: int, bound: float, median: float, taken: Any) -> tuple[float, float]:
    tail = leaves = 0.0
    for row in calls:
        is_asked = row["method_id"] == method and row["status"] == schema.STATUS_OK
        if is_asked and row["total_ns"] is not None and taken(row) is not None and row["total_ns"] > bound:
            tail += weight(row)
            leaves += weight(row) * (row["total_ns"] - taken(row) + median < bound)
    return tail, leaves
