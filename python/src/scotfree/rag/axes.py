"""The axes along which an index codes residuals: where they vary most, and how many bits each has.

Principal axes of the residuals' directions, and bits dealt one at a time to the axis whose error falls most by it:
for normal values the best there is at whole bits (Gersho and Gray, Vector Quantization and Signal Compression,
1992, chapters 8.3 and 8.5).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag.clustering import Places
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent

# Of a uniform quantizer of so many bits (the place) for a normal value of variance 1: the best step, and the mean
# square of the error that it leaves (Max, Quantizing for minimum distortion, IRE Transactions, 1960, table II; six
# bits by the same equations).
_STEPS: Final = (np.nan, 1.596, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041)
_ERRORS: Final = (1.0, 0.3634, 0.1188, 0.03744, 0.01154, 0.003490, 0.001040)
_DEPTH_MAX: Final = len(_STEPS) - 1
# What every kernel of a scan reads at once: codes are filled up to a multiple of it.
_WORD_BITS: Final = 64
# Residuals that are in memory at once, and that axes are learnt from.
_ROWS: Final = 4_096
_LEARNT_MAX: Final = 65_536

Floats = np.ndarray[Any, np.dtype[np.float64]]


def bits_of(dimensions: int, bits: float) -> int:
    """How many bits a code has at so many a dimension."""
    whole = max(1, round(dimensions * bits / _WORD_BITS)) * _WORD_BITS
    return min(whole, dimensions * _DEPTH_MAX)


def learnt(vectors: Vectors, centres: Vectors, places: Places, bits: int, seed: int) -> _native.Axes:
    """Axes for vectors that lie in these clusters, with so many bits together."""
    chance = np.random.default_rng(seed)
    rows = np.sort(chance.permutation(len(vectors))[:_LEARNT_MAX])
    parts = (rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS))
    variances, directions = _principal((vectors[part] - centres[places[part]] for part in parts), vectors.shape[1])
    depths = _dealt(variances, bits)
    kept = np.flatnonzero(depths)
    depths, variances, rest = depths[kept], variances[kept], np.delete(variances, kept)
    return _native.Axes(
        lent(directions[kept].astype(np.float32)),
        lent((np.sqrt(variances) * np.take(_STEPS, depths)).astype(np.float32)),
        lent((variances * np.take(_ERRORS, depths)).astype(np.float32)),
        lent(depths.astype(np.uint32)),
        rest=float(rest.mean()) if len(rest) else 0.0,
        dimensions=vectors.shape[1],
    )


def _principal(parts: Iterable[Vectors], dimensions: int) -> tuple[Floats, Floats]:
    """The variances of residuals of length one along their principal axes, and those, the greatest first."""
    # What few of them say of many dimensions is not to be believed: the fewer, the more they count as all alike.
    spread, count = np.eye(dimensions), dimensions
    for residuals in parts:
        lengths = np.linalg.norm(residuals, axis=1, keepdims=True)
        units = residuals / np.where(lengths > 0, lengths, 1)
        spread += units.T @ units
        count += len(residuals)
    spread /= count
    variances, directions = np.linalg.eigh(spread.astype(np.float64))
    return np.maximum(variances[::-1], 0), directions.T[::-1]


def _dealt(variances: Floats, bits: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many of the bits each axis has."""
    depths = np.zeros(len(variances), np.int64)

    def gain(axis: int) -> tuple[float, int]:
        depth = depths[axis]
        return -variances[axis] * (_ERRORS[depth] - _ERRORS[depth + 1]), axis

    waiting = [gain(axis) for axis in range(len(variances))]
    heapq.heapify(waiting)
    for _ in range(bits):
        axis = heapq.heappop(waiting)[1]
        depths[axis] += 1
        if depths[axis] < _DEPTH_MAX:
            heapq.heappush(waiting, gain(axis))
    return depths
