"""Clusters: planted ones are found, and every vector is in the nearest."""

from __future__ import annotations

import numpy as np
import pytest

from scotfree.rag import clustering
from scotfree.rag.embed.embedder import Vectors


def drawn(count: int, clusters: int, seed: int = 1) -> tuple[Vectors, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Vectors around orthogonal directions, and whose each is."""
    chance = np.random.default_rng(seed)
    truth = np.arange(count) % clusters
    vectors = np.eye(64)[truth] + 0.05 * chance.standard_normal((count, 64))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), truth


def test_every_vector_is_in_the_nearest_cluster() -> None:
    vectors, _ = drawn(1000, 20)
    centres = clustering.centroids(vectors, 12, seed=3)
    wanted = np.linalg.norm(vectors[:, None] - centres[None], axis=2).argmin(axis=1)
    assert np.array_equal(clustering.nearest(vectors, centres), wanted)
    assert np.array_equal(clustering.centroids(vectors, 12, seed=3), centres), "a seed is a result"


def test_centroids_become_means_and_come_nearer(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors, _ = drawn(400, 4)
    spreads = []
    for iterations in (0, 1, 20):
        monkeypatch.setattr(clustering, "ITERATIONS", iterations)
        centres = clustering.centroids(vectors, 4, seed=5)
        places = clustering.nearest(vectors, centres)
        spreads.append(float((np.linalg.norm(vectors - centres[places], axis=1) ** 2).sum()))
    assert spreads[0] > spreads[1] >= spreads[2]
    for cluster in range(4):
        assert np.abs(vectors[places == cluster].mean(axis=0) - centres[cluster]).max() < 1e-5


def test_as_many_clusters_as_vectors_and_equal_vectors_are_no_trouble() -> None:
    vectors, _ = drawn(5, 5)
    assert set(clustering.nearest(vectors, clustering.centroids(vectors, 5, seed=1))) == set(range(5))
    same = np.repeat(vectors[:1], 50, axis=0)
    assert np.isfinite(clustering.centroids(same, 3, seed=1)).all()


def test_rows_are_in_the_order_of_clusters() -> None:
    starts, rows = clustering.ordered(np.array([2, 0, 2, 1], np.uint32), 4)
    assert starts.tolist() == [0, 1, 2, 4, 4] and rows.tolist() == [1, 3, 0, 2]
    assert starts.dtype == rows.dtype == np.uint32
