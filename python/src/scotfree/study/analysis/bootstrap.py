"""Intervals by resampling whole traces: calls of one trace are not independent.

Traces are dealt into `GROUPS` groups by a hash of their id; a resample draws that many groups with replacement.
What is resampled are counts per group, so that the cost does not grow with the calls.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study.store import partitions_of, trace_words

GROUPS = 64
RESAMPLES = 200
LOW, HIGH = 0.025, 0.975
_SEED = 15

Floats = np.ndarray[Any, np.dtype[np.float64]]


@cache
def draws() -> Floats:
    """How often each resample has each group: RESAMPLES x GROUPS, the same at every call."""
    chance = np.full(GROUPS, 1 / GROUPS)
    return np.random.default_rng(_SEED).multinomial(GROUPS, chance, RESAMPLES).astype(np.float64)


def ratios(parts: Floats, wholes: Floats) -> Floats:
    """Resamples of Σ parts / Σ wholes: from (…, GROUPS) to (…, RESAMPLES); NaN where a resample has no whole."""
    weights = draws().T
    below = wholes @ weights
    drawn: Floats = np.divide(parts @ weights, below, out=np.full(below.shape, np.nan), where=below > 0)
    return drawn


def interval(resamples: Floats) -> tuple[Floats, Floats]:
    """The 95 % interval of each row; NaN without a resample that has a value."""
    # What is no number is sorted behind all others.
    ordered = np.sort(resamples, axis=1)
    known = (~np.isnan(resamples)).sum(axis=1)
    rows = np.arange(len(ordered))
    low, high = (
        ordered[rows, np.maximum(np.ceil(share * known).astype(np.int64) - 1, 0)] for share in (LOW, HIGH)
    )
    return low, high


def group_of(trace_ids: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The group of each trace id."""
    return partitions_of(trace_words(trace_ids), GROUPS)
