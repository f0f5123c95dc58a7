"""Arithmetic of the truth: plain numpy over all values at once, shared with nothing that is tested against it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scotfree.study import schema
from scotfree.study.fleet.draws import Array

_PARTS = 10_000


def nearest_rank(values: Array, weights: Array, p: float) -> float:
    """The smallest value whose cumulative weight reaches p of all (R6, R7)."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    # In whole ten-thousandths: weights are whole too, so that nothing is rounded.
    place = np.searchsorted(reached * _PARTS, reached[-1] * round(p * _PARTS))
    return float(values[order][place])


def by_method(methods: Array) -> Iterator[tuple[int, Array]]:
    """Each method and its rows."""
    order = np.argsort(methods, kind="stable")
    found, starts = np.unique(methods[order], return_index=True)
    for method, rows in zip(found, np.split(order, starts[1:]), strict=True):
        yield int(method), rows


def quantiles(methods: Array, values: Array, weights: Array) -> dict[int, dict[str, float]]:
    """Per method with enough samples (R3): samples, weight, p01 … p99."""
    return {
        method: {
            "samples": len(rows),
            "weight": float(weights[rows].sum()),
            **{f"p{round(p * 100):02}": nearest_rank(values[rows], weights[rows], p) for p in schema.QUANTILES},
        }
        for method, rows in by_method(methods)
        if len(rows) >= schema.SAMPLES_MIN
    }


def what_if(methods: Array, total: Array, stage: Array, weights: Array) -> dict[int, tuple[float, float]]:
    """Per method with enough samples: weight of the P95 tail, and of what leaves it (F15)."""
    found = {}
    for method, rows in by_method(methods):
        if len(rows) < schema.SAMPLES_MIN:
            continue
        whole, part, weight = total[rows], stage[rows], weights[rows]
        bound = nearest_rank(whole, weight, 0.95)
        tail = whole > bound
        leaves = tail & (whole - part + nearest_rank(part, weight, 0.5) < bound)
        found[method] = float(weight[tail].sum()), float(weight[leaves].sum())
    return found
