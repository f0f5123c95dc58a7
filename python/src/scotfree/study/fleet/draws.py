"""Random numbers that depend on a seed and a number only, not on what was drawn before."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1


def mix(words: Array) -> Array:
    """The finalizer of SplitMix64: each word to another, all bits depending on all."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ words >> np.uint64(shift)) * np.uint64(factor)
    mixed: Array = words ^ words >> np.uint64(31)
    return mixed


def words(seed: int, purpose: int, numbers: Array) -> Array:
    """A word for each number."""
    salt = mix(np.array([(seed * _GOLDEN + purpose) & _MASK], np.uint64))
    return mix(numbers.astype(np.uint64) * np.uint64(_GOLDEN) + salt)


def uniforms(seed: int, purpose: int, numbers: Array) -> Array:
    """A value in [0, 1) for each number."""
    return (words(seed, purpose, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def stream(seed: int, *purpose: int) -> np.random.Generator:
    """A generator for one purpose."""
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed, *purpose])))


def zipf_weights(count: int, power: float) -> Array:
    """Shares by rank."""
    shares = np.arange(1, count + 1, dtype=np.float64) ** -power
    found: Array = shares / shares.sum()
    return found


def lookup(shares: Array, size: int) -> Array:
    """A table of which a uniformly chosen entry is i with about `shares[i]`; each occurs."""
    counts = np.maximum(1, np.floor(shares * size)).astype(np.int64)
    return np.repeat(np.arange(len(shares), dtype=np.int32), counts)
