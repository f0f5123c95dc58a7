"""The thesis' five configurations (Table 4.4) of one index: all that differs is where embeddings come from.

Algorithm 1: embeddings of clusters that take longer to make than the SLO are stored. Search (4.5.3): stored ones
are loaded, cached ones taken, others made again. Insertion and removal (4.5.4): into the nearest cluster and out
of it; one that grew too large is split, one that became cheap joins a neighbour if both together are in time.

What was built can be saved and opened by another process, which then has never had more in memory than it needs.
"""

from __future__ import annotations

import enum
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from scotfree.rag import clustering
from scotfree.rag.cache import Cache
from scotfree.rag.edge.threshold import Threshold, step_ns
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.stages import Staged

_SEED: Final = 1
_FILE: Final = "cluster-{}.npy"
# What is saved: all but embeddings, and those that are kept.
_SAVED: Final = "clusters.npz"
_KEPT: Final = "kept.npy"


class Configuration(enum.Enum):
    """Of Table 4.4."""

    FLAT = "Flat"
    IVF = "IVF"
    GENERATE = "IVF+Gen"
    LOAD = "IVF+Gen+Load"
    EDGERAG = "EdgeRAG"

    @property
    def keeps_all(self) -> bool:
        """Whether all embeddings stay in memory."""
        return self in (Configuration.FLAT, Configuration.IVF)

    @property
    def stores(self) -> bool:
        """Whether embeddings that are dear to make lie on the disk."""
        return self in (Configuration.LOAD, Configuration.EDGERAG)


@dataclass(frozen=True)
class Settings:
    """How it is built and searched."""

    configuration: Configuration = Configuration.EDGERAG
    # Time in which a query must be answered; a cluster that takes longer to make is stored.
    slo_ns: float = 1e9
    # What one letter of text takes to embed: the thesis' GenRate, turned round.
    letter_ns: float = 30_000.0
    cache_bytes: int = 64 << 20
    is_pseudo_code: bool = False
    # A cluster of more passages is split.
    split_above: int = 2_000
    # After a removal a cluster joins a neighbour if it costs less than this share of what clusters cost in the
    # median. The thesis lets any below the SLO join; then two of any size would become one, and a question would
    # embed both where it wants one.
    merge_share: float = 0.25


@dataclass
class Found(Staged):
    """The nearest passages with their similarities, and what finding them took."""

    nearest: list[tuple[int, float]] = field(default_factory=list)
    regenerated: int = 0
    loaded: int = 0
    cached: int = 0
    # Clusters that the cache had, and those that it was to have and had not.
    hits: int = 0
    misses: int = 0

    @property
    def has_missed(self) -> bool:
        """Whether more of the clusters that the cache is to have were lacking than were there."""
        return self.misses > self.hits


@dataclass
class _Cluster:
    """Its passages in the order of their embeddings."""

    passages: list[int]
    letters: list[int]
    # Where configuration or cost say so.
    kept: Vectors | None = None
    is_stored: bool = False


# The texts of passages.
Texts = Callable[[Sequence[int]], list[str]]


class EdgeIndex:
    """Passages in clusters; embeddings are kept, stored, cached or made again."""

    def __init__(self, folder: Path, embedder: Embedder, texts: Texts, settings: Settings) -> None:
        """`folder` holds what is stored, and nothing else."""
        folder.mkdir(parents=True, exist_ok=True)
        self.settings = settings
        self._folder = folder
        self._embedder = embedder
        self._texts = texts
        self._centroids: Vectors = np.empty((0, embedder.dimensions), np.float32)
        self._clusters: list[_Cluster] = []
        self._cache = Cache(settings.cache_bytes if settings.configuration is Configuration.EDGERAG else 0)
        self._threshold = Threshold(settings.is_pseudo_code)
        # Whether clusters have changed since its step was set.
        self._is_step_old = True

    def build(self, passages: Sequence[int], vectors: Vectors, clusters: int) -> None:
        """From passages and their embeddings, of length one; Flat has one cluster whatever is said."""
        count = 1 if self.settings.configuration is Configuration.FLAT else max(1, min(clusters, len(passages)))
        self._centroids = clustering.centroids(vectors, count, _SEED)
        places = clustering.nearest(vectors, self._centroids)
        letters = np.array([len(text) for text in self._texts(passages)])
        self._clusters = []
        for cluster in range(count):
            rows = np.flatnonzero(places == cluster)
            own = [passages[row] for row in rows.tolist()]
            self._clusters.append(_Cluster(own, letters[rows].tolist()))
            self._settle(cluster, vectors[rows])

    def save(self) -> None:
        """Writes into its folder what `opened` reads; what is cached is not of it."""
        clusters = self._clusters
        np.savez(
            self._folder / _SAVED,
            centroids=self._centroids,
            sizes=np.array([len(of.passages) for of in clusters], np.int64),
            passages=np.array([passage for of in clusters for passage in of.passages], np.int64),
            letters=np.array([letters for of in clusters for letters in of.letters], np.int64),
            stored=np.array([of.is_stored for of in clusters], np.bool_),
        )
        if self.settings.configuration.keeps_all:
            kept = [of.kept for of in clusters if of.kept is not None]
            np.save(self._folder / _KEPT, np.concatenate([self._centroids[:0], *kept]))

    @classmethod
    def opened(cls, folder: Path, embedder: Embedder, texts: Texts, settings: Settings) -> EdgeIndex:
        """What was saved, with the settings of then."""
        index = cls(folder, embedder, texts, settings)
        with np.load(folder / _SAVED) as saved:
            index._centroids = saved["centroids"]
            ends = np.cumsum(saved["sizes"])[:-1]
            passages, letters = (np.split(saved[name], ends) for name in ("passages", "letters"))
            stored = saved["stored"].tolist()
        keeps_all = settings.configuration.keeps_all
        kept = np.split(np.load(folder / _KEPT), ends) if keeps_all else [None] * len(stored)
        index._clusters = [
            _Cluster(own.tolist(), sizes.tolist(), vectors, is_stored)
            for own, sizes, vectors, is_stored in zip(passages, letters, kept, stored, strict=True)
        ]
        return index

    @property
    def clusters(self) -> int:
        """How many there are."""
        return len(self._clusters)

    @property
    def stored(self) -> list[int]:
        """Clusters whose embeddings lie on the disk."""
        return [place for place, cluster in enumerate(self._clusters) if cluster.is_stored]

    @property
    def passages(self) -> list[int]:
        """All of them."""
        return sorted(passage for cluster in self._clusters for passage in cluster.passages)

    def memory_bytes(self) -> int:
        """Of centroids and embeddings."""
        kept = sum(cluster.kept.nbytes for cluster in self._clusters if cluster.kept is not None)
        return self._centroids.nbytes + kept + self._cache.bytes

    @property
    def threshold_ns(self) -> float:
        """What a cluster costs at the least that is cached."""
        return self._threshold.cost_ns

    @property
    def average_ns(self) -> float | None:
        """What a search took on average lately, if there was one."""
        return self._threshold.average_ns

    def resume(self, threshold_ns: float, average_ns: float | None) -> None:
        """Goes on with the threshold and the average of an earlier process."""
        self._threshold.cost_ns, self._threshold.average_ns = threshold_ns, average_ns

    def cost_ns(self, cluster: int) -> float:
        """What it takes to make a cluster's embeddings."""
        return sum(self._clusters[cluster].letters) * self.settings.letter_ns

    def search(self, question: Vectors, count: int, probes: int) -> Found:
        """The nearest passages of the nearest clusters."""
        began, found = time.perf_counter_ns(), Found()
        with found.stage("centroid search"):
            near = self._nearest(question, probes)
        scored: list[tuple[int, float]] = []
        for cluster in near:
            vectors = self._embeddings(cluster, found)
            with found.stage("score"):
                similar = vectors @ question
                first = np.argsort(-similar, kind="stable")[:count]
                passages = self._clusters[cluster].passages
                scored += [(passages[row], float(similar[row])) for row in first.tolist()]
        found.nearest = sorted(scored, key=lambda one: (-one[1], one[0]))[:count]
        self._observe(time.perf_counter_ns() - began, found)
        return found

    def insert(self, passage: int, text: str, vector: Vectors | None = None) -> None:
        """Puts one into the nearest cluster; its embedding is made if it is not given."""
        vector = self._embedder.embed([text])[0] if vector is None else vector
        if not self._clusters:
            self._add_cluster(vector)
        cluster = int(clustering.nearest(vector[None], self._centroids)[0])
        vectors = self._known(cluster)
        of = self._clusters[cluster]
        of.passages.append(passage)
        of.letters.append(len(text))
        self._cache.drop(cluster)
        self._settle(cluster, None if vectors is None else np.vstack([vectors, vector]))
        if len(of.passages) > self.settings.split_above and self.settings.configuration is not Configuration.FLAT:
            self._split(cluster)

    def remove(self, passage: int) -> None:
        """Takes one out; a `KeyError` says that it is not there."""
        cluster = next((at for at, of in enumerate(self._clusters) if passage in of.passages), None)
        if cluster is None:
            raise KeyError(passage)
        vectors, of = self._known(cluster), self._clusters[cluster]
        row = of.passages.index(passage)
        del of.passages[row], of.letters[row]
        self._cache.drop(cluster)
        self._settle(cluster, None if vectors is None else np.delete(vectors, row, axis=0))
        if self._is_small(cluster):
            self._merge(cluster)

    def ranks(self, question: Vectors) -> dict[int, int]:
        """Of each passage how many clusters are nearer to a question than its own."""
        order = self._nearest(question, len(self._clusters))
        return {passage: rank for rank, place in enumerate(order) for passage in self._clusters[place].passages}

    def _nearest(self, question: Vectors, probes: int) -> list[int]:
        distances = np.linalg.norm(self._centroids - question, axis=1)
        return [int(place) for place in np.argsort(distances, kind="stable")[:probes]]

    def _embeddings(self, cluster: int, found: Found) -> Vectors:
        of = self._clusters[cluster]
        if of.kept is not None:
            return of.kept
        if of.is_stored:
            with found.stage("load"):
                found.loaded += len(of.passages)
                return self._load(cluster)
        with found.stage("cache"):
            cached = self._cache.get(cluster)
        if cached is not None:
            found.hits += 1
            found.cached += len(of.passages)
            return cached
        with found.stage("regenerate"):
            vectors = self._made(cluster)
        found.regenerated += len(of.passages)
        if self.cost_ns(cluster) >= self._threshold.cost_ns:
            found.misses += 1
            self._cache.put(cluster, vectors, self.cost_ns(cluster))
        return vectors

    def _observe(self, latency_ns: int, found: Found) -> None:
        if self.settings.configuration is not Configuration.EDGERAG:
            return
        self._set_step()
        self._threshold.observe(latency_ns, has_missed=found.has_missed)
        self._cache.drop_cheaper(self._threshold.cost_ns)

    def _set_step(self) -> None:
        """By what clusters cost that may be cached: those that are not stored."""
        if self._is_step_old:
            costs = [self.cost_ns(place) for place, of in enumerate(self._clusters) if not of.is_stored]
            self._threshold.step_ns = step_ns(costs)
            self._is_step_old = False

    def _made(self, cluster: int) -> Vectors:
        return self._embedder.embed(self._texts(self._clusters[cluster].passages))

    def _known(self, cluster: int) -> Vectors | None:
        """The embeddings, if they are anywhere but in the cache."""
        of = self._clusters[cluster]
        return self._load(cluster) if of.is_stored else of.kept

    def _load(self, cluster: int) -> Vectors:
        found: Vectors = np.load(self._path(cluster))
        if found.shape != (len(self._clusters[cluster].passages), self._embedder.dimensions):
            raise ValueError(f"{self._path(cluster)} has not a row for each passage of its cluster")
        return found

    def _path(self, cluster: int) -> Path:
        return self._folder / _FILE.format(cluster)

    def _settle(self, cluster: int, vectors: Vectors | None) -> None:
        """Keeps, stores or forgets a cluster's embeddings, as configuration and cost say (Algorithm 1)."""
        of, self._is_step_old = self._clusters[cluster], True
        if self.settings.configuration.keeps_all:
            of.kept = self._made(cluster) if vectors is None else vectors
            return
        of.is_stored = self.settings.configuration.stores and self.cost_ns(cluster) > self.settings.slo_ns
        if of.is_stored:
            np.save(self._path(cluster), self._made(cluster) if vectors is None else vectors)
        else:
            self._path(cluster).unlink(missing_ok=True)

    def _add_cluster(self, centroid: Vectors) -> int:
        self._centroids = np.vstack([self._centroids, centroid[None]])
        self._clusters.append(_Cluster([], []))
        self._settle(len(self._clusters) - 1, np.empty((0, self._embedder.dimensions), np.float32))
        return len(self._clusters) - 1

    def _split(self, cluster: int) -> None:
        """Into two, each around its own mean."""
        vectors = self._known(cluster)
        vectors = self._made(cluster) if vectors is None else vectors
        centres = clustering.centroids(vectors, 2, _SEED)
        places, before = clustering.nearest(vectors, centres), self._clusters[cluster]
        other = self._add_cluster(centres[1])
        self._centroids[cluster] = centres[0]
        for target, place in ((cluster, 0), (other, 1)):
            rows = np.flatnonzero(places == place).tolist()
            self._clusters[target] = _Cluster(
                [before.passages[row] for row in rows], [before.letters[row] for row in rows]
            )
            self._settle(target, vectors[rows])

    def _is_small(self, cluster: int) -> bool:
        """Whether it has become so cheap that it should join another."""
        costs = [self.cost_ns(place) for place in range(len(self._clusters))]
        return len(costs) > 1 and costs[cluster] <= self.settings.merge_share * statistics.median(costs)

    def _merge(self, cluster: int) -> None:
        """It joins the nearest with which it costs no more than the SLO; without one it stays as it is."""
        near = self._nearest(self._centroids[cluster], len(self._clusters))
        cost = self.cost_ns(cluster)
        within = (other for other in near if cost + self.cost_ns(other) <= self.settings.slo_ns)
        target = next((other for other in within if other != cluster), None)
        if not self._clusters[cluster].passages:
            self._take_out(cluster)
        elif target is not None:
            self._join(cluster, target)
            self._take_out(cluster)

    def _join(self, cluster: int, target: int) -> None:
        """Puts a cluster's passages into another. Neither is stored: together they cost no more than the SLO."""
        own, other = self._clusters[cluster], self._clusters[target]
        vectors = None if own.kept is None or other.kept is None else np.concatenate([other.kept, own.kept])
        # The mean of all their embeddings, as far as both centroids are the mean of theirs.
        sizes = (len(own.passages), len(other.passages))
        self._centroids[target] = np.average(self._centroids[[cluster, target]], axis=0, weights=sizes)
        self._clusters[target] = _Cluster(other.passages + own.passages, other.letters + own.letters)
        self._cache.drop(target)
        self._settle(target, vectors)

    def _take_out(self, cluster: int) -> None:
        last = len(self._clusters) - 1
        for place in (cluster, last):
            self._cache.drop(place)
        self._path(cluster).unlink(missing_ok=True)
        if self._clusters[last].is_stored and last != cluster:
            self._path(last).rename(self._path(cluster))
        self._clusters[cluster] = self._clusters[last]
        self._centroids[cluster] = self._centroids[last]
        self._clusters.pop()
        self._centroids = self._centroids[:last]
