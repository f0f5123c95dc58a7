"""Clusters of embeddings: spherical k-means (Lloyd's iterations; the thesis has 20, section 4.6)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from scotfree.rag.embed.embedder import Vectors

ITERATIONS: Final = 20
# Embeddings that a centroid is learnt from, as faiss has it.
_EACH: Final = 256
# Embeddings that are compared with all centroids at once: so many rows of a matrix.
_ROWS: Final = 4_096

Places = np.ndarray[Any, np.dtype[np.uint32]]


def centroids(vectors: Vectors, count: int, seed: int) -> Vectors:
    """So many centroids, each the mean of its embeddings; `vectors` have length one."""
    chance = np.random.default_rng(seed)
    chosen = chance.permutation(len(vectors))[: _EACH * count]
    learnt = vectors if len(chosen) == len(vectors) else vectors[np.sort(chosen)]
    found = learnt[np.sort(chance.permutation(len(learnt))[:count])].copy()
    for _ in range(ITERATIONS):
        found = _means(learnt, nearest(learnt, found), found, chance)
    return found


def nearest(vectors: Vectors, centres: Vectors) -> Places:
    """Of each vector the centroid at the least distance."""
    # |v - c|² is |v|² - 2 <v, c> + |c|², and |v| is the same for all.
    own = np.einsum("ij,ij->i", centres, centres) / 2
    places = [
        np.argmax(np.asarray(vectors[at : at + _ROWS]) @ centres.T - own, axis=1)
        for at in range(0, len(vectors), _ROWS)
    ]
    return np.concatenate([*places, np.empty(0, np.int64)]).astype(np.uint32)


def _means(vectors: Vectors, places: Places, before: Vectors, chance: np.random.Generator) -> Vectors:
    """The mean of each cluster; an empty one begins anew at some embedding."""
    counts = np.bincount(places, minlength=len(before))
    known = counts > 0
    sums = np.zeros_like(before)
    for at in range(0, len(vectors), _ROWS):
        own = places[at : at + _ROWS]
        order = np.argsort(own, kind="stable")
        clusters, starts = np.unique(own[order], return_index=True)
        sums[clusters] += np.add.reduceat(vectors[at : at + _ROWS][order], starts, axis=0)
    found = before.copy()
    found[known] = sums[known] / counts[known, None]
    if not known.all():
        found[~known] = vectors[chance.integers(0, len(vectors), (~known).sum())]
    return found


def ordered(places: Places, count: int) -> tuple[Places, Places]:
    """The first row of each cluster (and, last, how many there are), and of each row its embedding."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=count))])
    return starts.astype(np.uint32), np.argsort(places, kind="stable").astype(np.uint32)
