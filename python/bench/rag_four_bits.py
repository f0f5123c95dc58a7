"""Codes of four bits a dimension, of which nothing is embedded again, beside faiss' IVF-Flat at equal recall.

Both look at as few of their clusters as find what is wanted on the first half of the questions; the other half is
asked one question at a time, in turns, by one thread, from a question's embedding to its ten passages.

What `Index.search` takes above its native call, for texts, metadata and places of what is found, is measured in
turns, too: processor time, all clusters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np

from bench import rag_collections
from bench.rag_collections import fewest
from scotfree import _native
from scotfree.rag import Index
from scotfree.rag.evaluation.corpus import Place
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.modes import Mode, build_ours, passages
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.lending import lent
from scotfree.rag.searching import bare_probes

# A question's embedding and how many clusters are looked at; what is found.
Search = Callable[[Any, int], Any]


@dataclass(frozen=True)
class Peer:
    """One of the two."""

    search: Search
    # Where what was found is.
    places: Callable[[Any], list[Place]]
    clusters: int
    memory_bytes: int

    def recall(self, prepared: Prepared, questions: range, probes: int) -> float:
        """How much of what exact search finds it finds, from 0 to 1."""
        found = ((each, self.places(self.search(prepared.questions[each], probes))) for each in questions)
        return float(np.mean([prepared.share(each, places) for each, places in found]))


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection."""
    faiss.omp_set_num_threads(1)
    prepared = rag_collections.prepared(arm, settings["questions"])
    peers = (_ours(prepared), _theirs(prepared))
    half = len(prepared.questions) // 2
    tuned, others = range(half), range(half, len(prepared.questions))
    probes = [_fewest(peer, prepared, tuned, settings["recall"]) for peer in peers]
    times = _in_turns(peers, probes, prepared.questions[others.start :], settings["rounds"])
    recall, theirs = (peer.recall(prepared, others, at) for peer, at in zip(peers, probes, strict=True))
    p50 = [float(np.median(of)) / 1e3 for of in times]
    whole_us, native_us = _whole(prepared, settings["rounds"])
    return {
        "passages": len(prepared.parts),
        "questions": len(others),
        "recall": recall,
        "their_recall": theirs,
        "probes": probes[0],
        "their_probes": probes[1],
        "p50_us": p50[0],
        "their_p50_us": p50[1],
        "faster_times": p50[1] / p50[0],
        "p95_us": float(np.quantile(times[0], 0.95)) / 1e3,
        "their_p95_us": float(np.quantile(times[1], 0.95)) / 1e3,
        "whole_cpu_us": whole_us,
        "native_cpu_us": native_us,
        "whole_times": whole_us / native_us,
        "memory_percent": 100 * peers[0].memory_bytes / peers[1].memory_bytes,
    }


def _fewest(peer: Peer, prepared: Prepared, questions: range, recall: float) -> int:
    return fewest(peer.clusters, lambda probes: peer.recall(prepared, questions, probes) >= recall)


def _in_turns(peers: Sequence[Peer], probes: Sequence[int], questions: Any, rounds: int) -> Any:
    """Nanoseconds of each peer's searches."""
    times = np.empty((len(peers), rounds, len(questions)))
    for round_ in range(rounds):
        for place, question in enumerate(questions):
            for which, (peer, at) in enumerate(zip(peers, probes, strict=True)):
                began = time.perf_counter_ns()
                peer.search(question, at)
                times[which, round_, place] = time.perf_counter_ns() - began
    return times


def _whole(prepared: Prepared, rounds: int) -> tuple[float, float]:
    """Medians, in microseconds: `Index.search` of a question whose embedding is known, and its native call."""
    folder, none, times = Mode.FOUR_BITS.folder(prepared.base), _native.PassageSet(), []
    with Index(folder, prepared.known) as index:
        found = index.snapshot()
        assert found, "it was built"
        snapshot, near = found[1], bare_probes(found[1].clusters)
        for question in [*prepared.questions] * rounds:
            began = time.process_time_ns()
            index.search("what is looked for", COUNT, vector=question)
            halfway = time.process_time_ns()
            snapshot.search(lent(question), COUNT, snapshot.clusters, 0.0, none, bare_probes=near).guessed()
            times.append((halfway - began, time.process_time_ns() - halfway))
    whole, native = np.median(times, axis=0) / 1e3
    return float(whole), float(native)


def _ours(prepared: Prepared) -> Peer:
    mode = Mode.FOUR_BITS
    build_ours(mode, prepared.base, prepared.collection.documents, prepared.known, lambda _: None)
    (path,) = mode.folder(prepared.base).glob("codes-*.scot")
    snapshot = _native.Snapshot(path)
    with passages(prepared.base, mode) as store:
        where = {number: (document, start) for number, document, start in store.places()}
    none = _native.PassageSet()

    def search(question: Any, probes: int) -> Any:
        return snapshot.search(lent(question), COUNT, probes, 0.0, none, bare_probes=0).guessed()

    def places(found: Any) -> list[Place]:
        return [where[number] for number, _ in found]

    return Peer(search, places, snapshot.clusters, path.stat().st_size)


def _theirs(prepared: Prepared) -> Peer:
    vectors = np.ascontiguousarray(prepared.vectors)
    lists, dimensions = round(len(vectors) ** 0.5), vectors.shape[1]
    metric = faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(dimensions), dimensions, lists, metric)
    index.train(vectors)
    index.add(vectors)

    def search(question: Any, probes: int) -> Any:
        index.nprobe = probes
        return index.search(question[None], COUNT)[1][0]

    def places(found: Any) -> list[Place]:
        return [(prepared.parts[row].document, prepared.parts[row].start) for row in found]

    return Peer(search, places, lists, faiss.serialize_index(index).nbytes)
