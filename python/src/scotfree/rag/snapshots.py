"""Snapshots: written anew from embeddings that are read some at a time, or out of the one before and what changed.

An index learns its clusters and axes from a sample, then reads all embeddings twice: once for the cluster that
each lies in, once in the order of clusters to code them. In memory are the sample and the codes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np

from scotfree import _native
from scotfree.rag import axes, clustering
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.pending import MEMORY_MAX, Numbers, Pending
from scotfree.rag.placement.rows import of_length_one
from scotfree.rag.placement.stored import Made, Stored

# Below, a cluster has too few embeddings to be learnt from.
CLUSTER_MIN: Final = 39
# Embeddings that clusters and axes are learnt from, if those are enough for the clusters.
_LEARNT_MAX: Final = 32_768
# Embeddings that are coded at once.
_CODED: Final = 1_024
# Of those that were made again so many are kept until all is written.
_AGAIN_MAX: Final = 4_096
_SEED: Final = 1


class Model(Protocol):
    """What embeds passages."""

    digest: bytes
    dimensions: int


class Source(Protocol):
    """Passages with embeddings, of which some are in memory at a time."""

    # In their order.
    numbers: Numbers

    def parts(self) -> Iterator[tuple[Numbers, Vectors]]:
        """All of them in their order, with a row for each."""

    def vectors(self, numbers: Sequence[int] | Numbers) -> Vectors:
        """A row for each of these."""


class Known:
    """Passages whose embeddings are pending or lie in rows; where a row is damaged, it is made again."""

    def __init__(self, numbers: Numbers, pending: Pending, stored: Stored, made: Made) -> None:
        self.numbers = numbers
        self._pending, self._stored, self._made = pending, stored, made
        # A build reads all several times.
        self._again: dict[int, Vectors] = {}

    def parts(self) -> Iterator[tuple[Numbers, Vectors]]:
        """All of them in their order, with a row for each."""
        for at in range(0, len(self.numbers), _CODED):
            numbers = self.numbers[at : at + _CODED]
            yield numbers, self.vectors(numbers)

    def vectors(self, numbers: Sequence[int] | Numbers) -> Vectors:
        """A row for each of these."""
        wanted = np.asarray(numbers, np.uint32)
        is_new = self._pending.has(wanted)
        new = iter(self._pending.vectors(wanted[is_new]))
        old = wanted[~is_new].tolist()
        kept = self._stored.whole(old)
        if missing := [number for number in old if number not in kept]:
            kept |= self._made_once(missing)
        rows = [next(new) if fresh else kept[int(one)] for one, fresh in zip(wanted, is_new, strict=True)]
        return of_length_one(np.array(rows, np.float32))

    def _made_once(self, numbers: Sequence[int]) -> dict[int, Vectors]:
        new = [number for number in numbers if number not in self._again]
        found = dict(zip(new, self._made(new), strict=True)) if new else {}
        found |= {number: self._again[number] for number in numbers if number in self._again}
        if len(self._again) + len(new) <= _AGAIN_MAX:
            self._again |= found
        return found


def write_first(path: Path, source: Source, bits: int, model: Model) -> int:
    """A snapshot of these passages, with codes of so many bits; returns how many clusters it has."""
    sample = _sample(source, model.dimensions)
    count = max(1, min(round(math.sqrt(len(source.numbers))), len(source.numbers) // CLUSTER_MIN))
    centres = clustering.centroids(sample, count, _SEED)
    learnt = axes.learnt(sample, centres, clustering.nearest(sample, centres), bits, _SEED)
    del sample
    places = np.concatenate([clustering.nearest(vectors, centres) for _, vectors in source.parts()])
    order = np.argsort(places, kind="stable")
    writer = _native.SnapshotWriter(learnt, lent(centres), model=model.digest)
    for at in range(0, len(order), _CODED):
        rows = order[at : at + _CODED]
        numbers = source.numbers[rows]
        writer.add(lent(source.vectors(numbers)), lent(numbers), lent(places[rows]))
    writer.finish(path)
    return count


def _sample(source: Source, dimensions: int) -> Vectors:
    """The embeddings of some passages, drawn evenly; of few all."""
    most = max(_LEARNT_MAX, CLUSTER_MIN * round(math.sqrt(len(source.numbers))))
    chance = np.random.default_rng(_SEED)
    numbers = source.numbers[np.sort(chance.permutation(len(source.numbers))[:most])]
    found = np.empty((len(numbers), dimensions), np.float32)
    for at in range(0, len(numbers), _CODED):
        found[at : at + _CODED] = source.vectors(numbers[at : at + _CODED])
    return found


def write_merged(
    path: Path,
    old: _native.Snapshot,
    gone: set[int],
    added: Iterator[tuple[Numbers, Vectors]],
    bare: frozenset[int],
) -> None:
    """A snapshot of what `old` has but for `gone`, and of passages that are read some at a time.

    Clusters of `bare` have no codes; of those that had none and are to, all passages come first, in one part.
    """
    for numbers, vectors in added:
        _native.merge_snapshot(path, old, gone, lent(vectors), lent(numbers), bare=bare)
        old, gone = _native.Snapshot(path), set()


def gathered(parts: Iterator[tuple[Numbers, Vectors]], dimensions: int) -> Iterator[tuple[Numbers, Vectors]]:
    """The same in as few parts as memory has room for; at least one, if it has none in it."""
    numbers: list[Any] = [np.empty(0, np.uint32)]
    vectors: list[Any] = [np.empty((0, dimensions), np.float32)]
    for some, rows in parts:
        if sum(map(len, numbers)) + len(some) > MEMORY_MAX:
            yield np.concatenate(numbers), np.concatenate(vectors)
            numbers, vectors = [], []
        numbers.append(some)
        vectors.append(rows)
    yield np.concatenate(numbers), np.concatenate(vectors)
