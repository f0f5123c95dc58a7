"""Shapes of call trees: wider than deep (section 2.4). A trace has one of them; its methods are drawn for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scotfree.study.fleet.draws import Array, stream

_SHAPES = 1500
_SIZE_MAX = 3000
# Sizes fall with this power: most trees are of a few calls, some of thousands (F4).
_SIZE_POWER = 0.75


@dataclass(frozen=True)
class Shapes:
    """All shapes, one behind the other; calls of a shape in an order in which parents precede."""

    start: Array
    size: Array
    # Per call: the parent's place in its shape (-1: root), and what is known of it by construction.
    parent: Array
    level: Array
    descendants: Array
    # The call before it has the same parent, and both are leaves: it may be a hedge of that one.
    may_hedge: Array
    # 1 / probability with which traces of the shape are kept.
    weight: Array

    @property
    def leaf(self) -> Array:
        """Calls that call nobody."""
        found: Array = self.descendants == 0
        return found


def draw(seed: int, depth: int, sampling: bool) -> Shapes:
    """The shapes of a seed."""
    rng = stream(seed, 1)
    size = np.minimum(_SIZE_MAX, rng.random(_SHAPES) ** (-1 / _SIZE_POWER)).astype(np.int64)
    # One of every hundred is the deepest that is allowed, however few calls it has beside.
    chains = np.arange(_SHAPES) % 100 == 50
    size = np.where(chains, np.maximum(size, depth), size)
    trees = [_tree(rng, int(n), depth, bool(chain)) for n, chain in zip(size, chains, strict=True)]
    parent, level, below = (np.concatenate(parts) for parts in zip(*trees, strict=True))
    start = np.concatenate([[0], np.cumsum(size)[:-1]])
    weight = rng.choice([1.0, 2.0, 10.0], _SHAPES) if sampling else np.ones(_SHAPES)
    return Shapes(start, size, parent, level, below, _may_hedge(parent, below), weight)


def _tree(rng: np.random.Generator, size: int, depth: int, chain: bool) -> tuple[Array, Array, Array]:
    places = np.arange(size)
    # Squared: calls gather below those near the root.
    parent = np.floor(places * rng.random(size) ** 2).astype(np.int32)
    if chain:
        parent[:depth] = places[:depth] - 1
    parent[0] = -1
    level = np.zeros(size, np.int8)
    below = np.zeros(size, np.int32)
    for place in range(1, size):
        if level[parent[place]] == depth - 1:
            parent[place] = 0
        level[place] = level[parent[place]] + 1
    for place in range(size - 1, 0, -1):
        below[parent[place]] += below[place] + 1
    return parent, level, below


def _may_hedge(parent: Array, below: Array) -> Array:
    may: Array = (parent == np.roll(parent, 1)) & (below == 0) & (np.roll(below, 1) == 0) & (parent >= 0)
    return may
