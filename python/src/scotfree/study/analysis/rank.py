"""Spearman's correlation of ranks, with an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
# Below that many pairs an interval says nothing.
PAIRS_MIN: Final = 10
_Z_95: Final = 1.959964


@dataclass(frozen=True)
class Correlation:
    """rho with its 95 % interval, of so many pairs."""

    rho: float
    low: float
    high: float
    pairs: int


def ranks(values: Array) -> Array:
    """Ranks from 1; equal values share the mean of theirs."""
    _, where, size = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(size)
    found: Array = (last - (size - 1) / 2)[where]
    return found


def spearman(left: Array, right: Array) -> Correlation | None:
    """The correlation of two columns' ranks; None of too few pairs, or where one never changes.

    The interval is by Fisher's z with the standard error sqrt((1 + rho^2 / 2) / (n - 3)), which holds for ranks.
    It takes the pairs as independent; those of neighbouring half hours are not quite, so it is rather too narrow.
    """
    is_known = ~(np.isnan(left) | np.isnan(right))
    left, right = ranks(left[is_known]), ranks(right[is_known])
    pairs = len(left)
    if pairs < PAIRS_MIN or left.std() == 0 or right.std() == 0:
        return None
    rho = float(np.clip(np.corrcoef(left, right)[0, 1], -1, 1))
    centre = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
    reach = _Z_95 * np.sqrt((1 + rho * rho / 2) / (pairs - 3))
    return Correlation(rho, float(np.tanh(centre - reach)), float(np.tanh(centre + reach)), pairs)
