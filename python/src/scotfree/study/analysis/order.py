"""Intervals without an assumption on the distribution: of a quantile by ranks, of a share by Wilson's formula."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

import numpy as np

_TAIL: Final = 0.025
_Z: Final = NormalDist().inv_cdf(1 - _TAIL)
# Above so many the normal distribution stands for the binomial one.
_EXACT_MAX: Final = 1_000


def shares(p: float, samples: int) -> tuple[float, float] | None:
    """Between which shares of so many samples the p-quantile lies, with 95 %; None where they are too few."""
    low, high = _ranks(p, samples)
    return (low / samples, high / samples) if low >= 1 and high <= samples else None


def _ranks(p: float, samples: int) -> tuple[int, int]:
    """Of the values in their order, from 1: the last that is surely not above, the first that is not below."""
    if samples < 1:
        return 0, 1
    if samples > _EXACT_MAX:
        middle, far = p * samples, _Z * math.sqrt(p * (1 - p) * samples)
        return math.floor(middle - far), math.ceil(middle + far) + 1
    # Of each count the chance that no more values lie below the quantile.
    reached = np.cumsum(_binomial(p, samples))
    low = int(np.searchsorted(reached, _TAIL, side="right"))
    return low, int(np.searchsorted(reached, 1 - _TAIL)) + 1


def _binomial(p: float, samples: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    counts = np.arange(samples + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, samples + 1)))])
    ways = logs[-1] - logs - logs[::-1]
    chances: np.ndarray[tuple[int], np.dtype[np.float64]] = np.exp(
        ways + counts * math.log(p) + (samples - counts) * math.log1p(-p)
    )
    return chances


def share_interval(share: float, samples: float) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many."""
    if samples <= 0:
        return 0.0, 1.0
    spread = _Z * _Z / samples
    middle = (share + spread / 2) / (1 + spread)
    far = _Z / (1 + spread) * math.sqrt(share * (1 - share) / samples + spread / samples / 4)
    return max(0.0, middle - far), min(1.0, middle + far)
