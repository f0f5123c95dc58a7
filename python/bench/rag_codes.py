"""Codes that say what to embed again, beside EdgeRAG's clusters that are embedded whole, at equal recall.

Of one collection: our index that keeps codes alone, as `scot rag eval` measures it, and the thesis' index
(IVF+Gen: nothing is stored or cached) with as few clusters as find no less on these very questions, which favours
it.

Processor time is of all questions. Ours is measured in a process of its own. A question to theirs embeds some
ten thousand passages, a cluster at a time, and a cluster takes the same whoever asks: each is embedded once as a
search does it, and a question takes what its clusters took and what its search takes besides. A few questions are
also asked as ours are, to see that it comes to the same.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from bench import rag_collections
from bench.rag_collections import fewest
from scotfree.rag.edge.index import Configuration, EdgeIndex
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation.comparing import ONNX, Settings, evaluate
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.measuring import Job
from scotfree.rag.evaluation.measuring import measure as asked
from scotfree.rag.evaluation.modes import Mode, Opening, build_theirs, nearest_of, passages, texts_of
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.evaluation.rows import Row


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection."""
    prepared = rag_collections.prepared(arm, settings["questions"])
    evaluation = evaluate(
        prepared.collection, prepared.base.parent, Settings((Mode.SMALLEST,), cache_bytes=0), Shown()
    )
    ours = evaluation.modes[0]
    found = _beside(prepared, ours, settings["direct_questions"])
    if evaluation.exact:
        found |= {"ndcg_percent": 100 * ours.judged["nDCG@10"] / evaluation.exact["nDCG@10"]}
    return found | {
        "passages": evaluation.passages,
        "questions": evaluation.questions,
        "size_percent": 100 * ours.codes_of_flat,
        "places_percent": 100 * ours.disk.places_bytes / evaluation.flat_bytes,
        "all_percent": 100 * (ours.disk.codes_bytes + ours.disk.places_bytes) / evaluation.flat_bytes,
        "recall": ours.recall,
        "regenerated": ours.regenerated,
        "p50_ms": ours.latency_ms.p50,
        "p95_ms": ours.latency_ms.p95,
        "peak_mib": ours.peak_bytes / 2**20,
    }


def _beside(prepared: Prepared, ours: Row, direct_questions: int) -> dict[str, float]:
    opening = Opening(0, None, 1e9, prepared.letter_ns())
    probes, recall, regenerated = _theirs(prepared, ours.recall, opening)
    spent_s = _processor_s(prepared, opening, probes)
    texts = list(prepared.collection.questions.values())
    few = np.linspace(0, len(texts) - 1, direct_questions).astype(int)
    job = Job(Mode.GENERATE, prepared.base, ONNX, replace(opening, probes=probes), [texts[at] for at in few])
    direct_s = asked(job).cpu_ns / 1e9 / len(few)
    return {
        "their_probes": probes,
        "their_recall": recall,
        "their_regenerated": regenerated,
        "fewer_times": regenerated / ours.regenerated,
        "cpu_s": ours.cpu_ms / 1e3,
        "their_cpu_s": float(spent_s.mean()),
        "less_cpu_times": float(spent_s.mean()) / (ours.cpu_ms / 1e3),
        "direct_questions": len(few),
        "direct_percent": 100 * direct_s / float(spent_s[few].mean()),
    }


class _Looked(EdgeIndex):
    """Embeddings are looked up; which clusters' they were is noted, and what looking up took."""

    visited: list[int]
    looked_up_ns = 0

    def _made(self, cluster: int) -> Vectors:
        self.visited.append(cluster)
        texts = self.texts(cluster)
        began = time.process_time_ns()
        found = self._embedder.embed(texts)
        self.looked_up_ns += time.process_time_ns() - began
        return found

    def texts(self, cluster: int) -> list[str]:
        """What a search embeds of a cluster."""
        return self._texts(self._clusters[cluster].passages)


def _processor_s(prepared: Prepared, opening: Opening, probes: int) -> np.ndarray[Any, Any]:
    """Of each question, on all threads: its clusters and itself embedded, and all else that a search does."""
    folder, settings = Mode.GENERATE.folder(prepared.base), opening.settings(Configuration.GENERATE)
    with passages(prepared.base) as store:
        index = _Looked.opened(folder, prepared.known, texts_of(store, prepared.known), settings)
        assert isinstance(index, _Looked)
        clusters_ns = np.array([_embedding_ns(prepared, index.texts(at)) for at in range(index.clusters)])
        spent_ns = []
        for text, question in zip(prepared.collection.questions.values(), prepared.questions, strict=True):
            index.visited, index.looked_up_ns = [], 0
            began = time.process_time_ns()
            nearest_of(store, index.search(question, COUNT, probes).nearest)
            besides_ns = time.process_time_ns() - began - index.looked_up_ns
            spent_ns.append(besides_ns + _embedding_ns(prepared, [text]) + clusters_ns[index.visited].sum())
    return np.array(spent_ns) / 1e9


def _embedding_ns(prepared: Prepared, texts: list[str]) -> int:
    began = time.process_time_ns()
    prepared.model.embed(texts)
    return time.process_time_ns() - began


def _theirs(prepared: Prepared, recall: float, opening: Opening) -> tuple[int, float, float]:
    """The fewest clusters that find no less: how many, what they find, how many passages are embedded."""
    known = (prepared.parts, prepared.vectors)
    build_theirs(Mode.GENERATE, prepared.base, known, prepared.known, opening)
    folder, settings = Mode.GENERATE.folder(prepared.base), opening.settings(Configuration.GENERATE)
    with passages(prepared.base) as store:
        index = EdgeIndex.opened(folder, prepared.known, texts_of(store, prepared.known), settings)

        def tried(probes: int) -> tuple[float, float]:
            found = [index.search(question, COUNT, probes) for question in prepared.questions]
            shares = [prepared.share(at, nearest_of(store, each.nearest)) for at, each in enumerate(found)]
            return float(np.mean(shares)), float(np.mean([each.regenerated for each in found]))

        probes = fewest(index.clusters, lambda probes: tried(probes)[0] >= recall)
        return probes, *tried(probes)
