"""EdgeRAG as its thesis measures it: five configurations of one index on a device of 8 GB with an SD card.

The numbers are of the thesis' chapter 4: the latency of retrieval (Figures 4.12 and 4.13), its stages (4.6), what
clusters cost to embed and to load (4.4, 4.5), the threshold of the cache (4.7), what judges say (4.10), how often
passages are found again (Table 4.2), and how many embeddings a GB of memory serves (4.14). The first token of a
language model is measured by `rag_first_token`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bench import rag_collections
from bench.rag_collections import THREADS, fewest
from bench.rag_device import Device, Memory, Paced
from scotfree.rag.edge.index import EdgeIndex, Found
from scotfree.rag.edge.threshold import Threshold
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation import judged
from scotfree.rag.evaluation.corpus import Place
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.modes import Mode, Opening, build_ours, build_theirs, nearest_of, passages, texts_of
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.index import Index
from scotfree.rag.passages import Passages

THEIRS = (Mode.FLAT, Mode.IVF, Mode.GENERATE, Mode.LOAD, Mode.EDGERAG)
# Of what exact search finds, as much as nprobe is set to find.
RECALL = 0.99
# Of all embeddings, as much as is cached: what the thesis says that its cache takes.
CACHED = 0.07
# Thresholds of the cache that are tried: so many of a hundred clusters cost less.
THRESHOLDS = (0, 25, 50, 75, 90)
# Questions of the half that sets nprobe, in turn, before anything is measured. A threshold that ends at two and a
# half times what a cluster costs in the median rises there by 125 steps, and every other question that misses
# raises it: 250 questions, and some more are asked.
WARM_UP = 400
_REFERENCE_BYTES = 16
# They keep nothing from one question to the next.
_FORGETFUL = (Mode.GENERATE, Mode.LOAD)


class OnDevice(EdgeIndex):
    """The thesis' index, opened, with the device's clock."""

    device: Device
    paced: Paced
    # Nothing, where all that it keeps has room.
    memory: Memory | None = None
    # Of clusters what was made of them, so that nobody waits for looking it up; their letters cost as ever.
    made: dict[int, Vectors] | None = None

    def _embeddings(self, cluster: int, found: Found) -> Vectors:
        vectors = super()._embeddings(cluster, found)
        is_kept = self.settings.configuration.keeps_all
        if is_kept and self.memory and not self.memory.has(cluster, vectors.nbytes):
            self.device.read(vectors.nbytes)
        return vectors

    def _made(self, cluster: int) -> Vectors:
        if self.made is None:
            return super()._made(cluster)
        if cluster in self.made:
            self.paced.calls += 1
            self.device.embed(sum(self._clusters[cluster].letters))
        else:
            self.made[cluster] = super()._made(cluster)
        return self.made[cluster]

    def _load(self, cluster: int) -> Vectors:
        found = super()._load(cluster)
        self.device.read(found.nbytes)
        return found

    def _observe(self, latency_ns: int, found: Found) -> None:
        super()._observe(latency_ns + round(self.device.spent_ns), found)

    def fix(self, cost_ns: float) -> None:
        """Caches what costs no less, whatever happens."""
        self._threshold = Threshold(step_ns=0.0, cost_ns=cost_ns)
        self._is_step_old = False

    def clusters_bytes(self) -> list[int]:
        """What each cluster's embeddings are."""
        return [len(of.passages) * self._embedder.dimensions * 4 for of in self._clusters]


@dataclass
class Told:
    """What questions took on the device."""

    latencies_ms: list[float] = field(default_factory=list)
    embedding_ms: list[float] = field(default_factory=list)
    reading_ms: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    regenerated: list[int] = field(default_factory=list)
    hits: int = 0
    misses: int = 0

    def numbers(self, name: str, slo_ns: float) -> dict[str, float]:
        """Of a configuration by its name."""
        latencies = np.array(self.latencies_ms)
        p50, p95, p99 = np.percentile(latencies, (50, 95, 99))
        found = {
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "mean_ms": latencies.mean(),
            "embedding_ms": np.mean(self.embedding_ms),
            "reading_ms": np.mean(self.reading_ms),
            "late_percent": 100 * np.mean(latencies > slo_ns / 1e6),
            "recall": np.mean(self.recalls),
            "regenerated": np.mean(self.regenerated),
            "regenerated_in_all": sum(self.regenerated),
        }
        return {f"{name}_{metric}": float(value) for metric, value in found.items()}


@dataclass(frozen=True)
class Trial:
    """What all configurations have in common."""

    prepared: Prepared
    device: Device
    opening: Opening
    # Places of the questions that are asked; the others set nprobe.
    asked: range
    # Those that are asked before: what is kept from one question to the next is then as it is in use.
    before: list[int]
    # What the device has for embeddings; nothing, where it is enough for all of them.
    memory_bytes: float | None
    # Of all questions.
    texts: list[str]


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm has a name of its own; the settings say the collection, the modelled device and the SLO.

    `memory_mib` is what the device has for embeddings, if that is not enough for all; `letter_us` what a letter
    takes this machine to embed, if that is not to be measured: what is stored and cached depends on it.
    """
    trial = _trial(settings)
    prepared, opening = trial.prepared, trial.opening
    found: dict[str, float] = {
        "passages": len(prepared.parts),
        "questions": len(trial.asked),
        "probes": opening.probes or 0,
        "cache_mib": opening.cache_bytes / 2**20,
        # How often the embeddings would fill the memory that is for them.
        "memories_filled": prepared.vectors.nbytes // trial.memory_bytes if trial.memory_bytes else 0,
    }
    for mode in THEIRS:
        name = mode.name.lower()
        with _index(trial, mode) as (index, told):
            if mode not in _FORGETFUL:
                told(trial.before)
            found |= told(trial.asked).numbers(name, opening.slo_ns)
            found |= {f"{name}_memory_mib": index.memory_bytes() / 2**20}
            found |= {"clusters": index.clusters} if mode is Mode.IVF else {}
            found |= _costs(index, trial.device) if mode is Mode.GENERATE else {}
            found |= {"stored_clusters": len(index.stored)} if mode is Mode.LOAD else {}
    found |= _ours(trial).numbers("ours", opening.slo_ns)
    return found | _against(found) | _thresholds(trial) | _reuse(trial) | _scores(trial) | _served(trial, found)


def _trial(settings: dict[str, Any]) -> Trial:
    prepared = rag_collections.prepared(settings["collection"], settings["questions"])
    build_ours(Mode.SMALLEST, prepared.base, prepared.collection.documents, prepared.known, lambda _: None)
    letter_ns = 1e3 * settings["letter_us"] if "letter_us" in settings else prepared.letter_ns()
    device = Device.named(settings["modelled"], letter_ns, THREADS)
    cache_bytes = round(CACHED * prepared.vectors.nbytes)
    half = len(prepared.questions) // 2
    opening = Opening(cache_bytes, None, settings["slo_ms"] * 1e6, device.letter_ns)
    texts = list(prepared.collection.questions.values())
    memory_bytes = settings["memory_mib"] * 2**20 if "memory_mib" in settings else None
    asked, before = range(half, len(prepared.questions)), [each % half for each in range(WARM_UP)]
    trial = Trial(prepared, device, opening, asked, before, memory_bytes, texts)
    for mode in THEIRS:
        build_theirs(mode, prepared.base, (prepared.parts, prepared.vectors), prepared.known, opening)
    with _index(trial, Mode.IVF) as (index, _), passages(prepared.base) as store:

        def is_enough(probes: int) -> bool:
            return _recall(index, prepared, store, range(half), probes) >= RECALL

        probes = fewest(index.clusters, is_enough)
    return replace(trial, opening=replace(opening, probes=probes))


def _recall(index: EdgeIndex, prepared: Prepared, store: Passages, questions: range, probes: int) -> float:
    found = (index.search(prepared.questions[each], COUNT, probes).nearest for each in questions)
    shares = [prepared.share(each, nearest_of(store, of)) for each, of in zip(questions, found, strict=True)]
    return float(np.mean(shares))


Ask = Callable[[Sequence[int]], Told]


@contextmanager
def _index(trial: Trial, mode: Mode) -> Iterator[tuple[OnDevice, Ask]]:
    """A configuration as it was built, nothing cached, and what asks it."""
    assert mode.configuration, mode
    paced, prepared = Paced(trial.prepared.known, trial.device), trial.prepared
    with passages(prepared.base) as store:
        settings = trial.opening.settings(mode.configuration)
        index = OnDevice.opened(mode.folder(prepared.base), paced, texts_of(store, paced), settings)
        assert isinstance(index, OnDevice)
        index.device, index.paced = trial.device, paced
        index.memory = Memory(trial.memory_bytes) if trial.memory_bytes else None

        def one(question: int, told: Told) -> list[Place]:
            before = paced.calls
            vector = paced.embed([trial.texts[question]])[0]
            outcome = index.search(vector, COUNT, trial.opening.probes or index.clusters)
            told.regenerated.append(outcome.regenerated)
            told.hits += outcome.hits
            told.misses += paced.calls - before - 1
            return nearest_of(store, outcome.nearest)

        yield index, lambda questions: _told(trial, questions, one)


def _ours(trial: Trial) -> Told:
    prepared, paced = trial.prepared, Paced(trial.prepared.known, trial.device)
    folder = Mode.SMALLEST.folder(prepared.base)
    with Index(folder, paced, cache_bytes=trial.opening.cache_bytes) as index:

        def one(question: int, told: Told) -> list[Place]:
            answer = index.search(trial.texts[question], COUNT)
            told.regenerated.append(answer.regenerated)
            return [(hit.document, hit.start) for hit in answer.hits]

        _told(trial, trial.before, one)
        return _told(trial, trial.asked, one)


def _told(trial: Trial, questions: Sequence[int], one: Callable[[int, Told], list[Place]]) -> Told:
    told, device = Told(), trial.device
    for question in questions:
        device.begin()
        began = time.perf_counter_ns()
        places = one(question, told)
        told.latencies_ms.append((time.perf_counter_ns() - began + device.spent_ns) / 1e6)
        told.embedding_ms.append(device.embedding_ns / 1e6)
        told.reading_ms.append(device.reading_ns / 1e6)
        told.recalls.append(trial.prepared.share(question, places))
    return told


def _against(found: dict[str, float]) -> dict[str, float]:
    """By how much one is faster than another: the thesis' comparisons, and ours."""
    pairs = {
        "load_than_generate_p95": ("generate_p95_ms", "load_p95_ms"),
        "edgerag_than_generate_mean": ("generate_mean_ms", "edgerag_mean_ms"),
        "ours_than_edgerag_p50": ("edgerag_p50_ms", "ours_p50_ms"),
        "ours_than_edgerag_p95": ("edgerag_p95_ms", "ours_p95_ms"),
        "edgerag_than_ivf_p95": ("ivf_p95_ms", "edgerag_p95_ms"),
        "ours_than_flat_p50": ("flat_p50_ms", "ours_p50_ms"),
    }
    return {f"{name}_times": found[slow] / found[fast] for name, (slow, fast) in pairs.items()}


def _costs(index: OnDevice, device: Device) -> dict[str, float]:
    """Of clusters: what embedding takes, and how many are embedded sooner than loaded (Figures 4.4 and 4.5)."""
    made = np.array([index.cost_ns(cluster) for cluster in range(index.clusters)])
    loaded = np.array([device.read_ns(bytes_) for bytes_ in index.clusters_bytes()])
    p50, p95 = np.percentile(made / 1e6, (50, 95))
    return {
        "cluster_p50_ms": float(p50),
        "cluster_p95_ms": float(p95),
        "cluster_most_ms": float(made.max() / 1e6),
        "cluster_load_p50_ms": float(np.median(loaded) / 1e6),
        "sooner_made_percent": float(100 * np.mean(made < loaded)),
    }


def _thresholds(trial: Trial) -> dict[str, float]:
    """EdgeRAG with thresholds that stay as they are (Figure 4.7), and with its own.

    Each half of the questions is asked when the other has been: of 26 latencies the 95th of a hundred is one
    question's. Reading the texts that are embedded, some milliseconds of seconds, is left out of all of them.
    """
    halves = [(trial.before, list(trial.asked))]
    halves.append(
        ([trial.asked[each % len(trial.asked)] for each in range(WARM_UP)], list(range(trial.asked.start)))
    )
    found: dict[str, float] = {}
    made: dict[int, Vectors] = {}
    with _index(trial, Mode.EDGERAG) as (index, _):
        not_stored = set(range(index.clusters)) - set(index.stored)
        costs = [index.cost_ns(cluster) for cluster in not_stored] or [0.0]
    for percent in (*THRESHOLDS, None):
        name = "own" if percent is None else f"p{percent}"
        both, hits, misses = [], 0, 0
        for before, asked in halves:
            with _index(trial, Mode.EDGERAG) as (index, told):
                index.made = made
                if percent is not None:
                    index.fix(float(np.percentile(costs, percent)) if percent else 0.0)
                told(before)
                begun_ns = index.threshold_ns
                of = told(asked)
            both += of.latencies_ms
            hits, misses = hits + of.hits, misses + of.misses
        found[f"threshold_{name}_begun_ms"] = begun_ns / 1e6
        found[f"threshold_{name}_ended_ms"] = index.threshold_ns / 1e6
        found[f"threshold_{name}_mean_ms"] = float(np.mean(both))
        found[f"threshold_{name}_p95_ms"] = float(np.percentile(both, 95))
        found[f"threshold_{name}_hits_percent"] = 100 * hits / max(1, hits + misses)
    for metric in ("mean", "p95"):
        best = min(found[f"threshold_p{percent}_{metric}_ms"] for percent in THRESHOLDS)
        found[f"own_than_best_threshold_{metric}_times"] = found[f"threshold_own_{metric}_ms"] / best
    return found


def _reuse(trial: Trial) -> dict[str, float]:
    """How often a passage that is found was found before (Table 4.2), by exact search for all questions."""
    rows = [row for nearest in trial.prepared.nearest for row in nearest.rows]
    return {"accessed": len(rows), "accessed_unique": len(set(rows)), "reuse_ratio": len(rows) / len(set(rows))}


def _scores(trial: Trial) -> dict[str, float]:
    """What judges say of exact search and of clusters (Figure 4.10); nothing, where none have judged."""
    prepared = trial.prepared
    if not prepared.collection.judgements:
        return {}
    with _index(trial, Mode.IVF) as (index, _), passages(prepared.base) as store:

        def documents(question: int) -> list[str]:
            # A document has some passages: four times as many make a hundred documents of nearly every answer.
            found = index.search(prepared.questions[question], 4 * judged.MANY, trial.opening.probes or 1)
            return list(dict.fromkeys(name for name, _ in nearest_of(store, found.nearest)))[: judged.MANY]

        answers = {
            "flat": [prepared.nearest[each].documents for each in trial.asked],
            "ivf": [documents(each) for each in trial.asked],
        }
    found: dict[str, float] = {}
    for name, of in answers.items():
        measures = _measures(trial, of)
        found |= {f"{name}_ndcg10": measures["nDCG@10"], f"{name}_recall100": measures["recall@100"]}
    return found


def _measures(trial: Trial, answers: Sequence[Sequence[str]]) -> dict[str, float]:
    collection = trial.prepared.collection
    names = [list(collection.questions)[each] for each in trial.asked]
    few, many = (
        {name: list(of)[:count] for name, of in zip(names, answers, strict=True)}
        for count in (judged.FEW, judged.MANY)
    )
    return judged.measures(collection.judgements, few, many)


def _served(trial: Trial, found: dict[str, float]) -> dict[str, float]:
    """Embeddings that a GB of memory serves (Figure 4.14), as many to a cluster as here.

    The thesis': a share of a centroid, and a number and a count of letters of eight bytes each. Ours: the whole
    file that is mapped, though a search touches the nearest clusters of it alone.
    """
    count = found["passages"]
    theirs = trial.prepared.known.dimensions * 4 * found["clusters"] / count + _REFERENCE_BYTES
    (path,) = Mode.SMALLEST.folder(trial.prepared.base).glob("codes-*.scot")
    ours = path.stat().st_size / count
    return {"theirs_served_m_per_gb": 1e3 / theirs, "ours_served_m_per_gb": 1e3 / ours}
