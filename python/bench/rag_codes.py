"""Codes that say what to embed again, beside EdgeRAG's clusters that are embedded whole, at equal recall.

Of one collection: our index as `scot rag eval` measures it, and the thesis' index (IVF+Gen: nothing is stored or
cached) with as few clusters as find no less on these very questions, which favours it. Its processor time is of
fewer questions, the same for both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bench import rag_collections
from bench.rag_collections import fewest
from scotfree.rag.edge.index import Configuration, EdgeIndex
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
    evaluation = evaluate(prepared.collection, prepared.base.parent, Settings(cache_bytes=0), Shown())
    ours = evaluation.modes[0]
    found = _beside(prepared, ours, settings["cpu_questions"])
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


def _beside(prepared: Prepared, ours: Row, cpu_questions: int) -> dict[str, float]:
    opening = Opening(0, None, 1e9, prepared.letter_ns())
    probes, recall, regenerated = _theirs(prepared, ours.recall, opening)
    texts = list(prepared.collection.questions.values())
    few = [texts[place] for place in np.linspace(0, len(texts) - 1, cpu_questions).astype(int)]

    def cpu(mode: Mode, at: int | None) -> float:
        how = Opening(0, at, opening.slo_ns, opening.letter_ns)
        return asked(Job(mode, prepared.base, ONNX, how, few)).cpu_ns / 1e9 / len(few)

    ours_s, theirs_s = cpu(Mode.OURS, None), cpu(Mode.GENERATE, probes)
    return {
        "their_probes": probes,
        "their_recall": recall,
        "their_regenerated": regenerated,
        "fewer_times": regenerated / ours.regenerated,
        "cpu_s": ours_s,
        "their_cpu_s": theirs_s,
        "less_cpu_times": theirs_s / ours_s,
    }


def _theirs(prepared: Prepared, recall: float, opening: Opening) -> tuple[int, float, float]:
    """The fewest clusters that find no less: how many, what they find, how many passages are embedded."""
    known = (prepared.parts, prepared.vectors)
    build_theirs(Mode.GENERATE, prepared.base, known, prepared.known, opening)
    folder, settings = Mode.GENERATE.folder(prepared.base), opening.settings(Configuration.GENERATE)
    with passages(prepared.base) as store:
        index = EdgeIndex.opened(folder, prepared.known, texts_of(store), settings)

        def tried(probes: int) -> tuple[float, float]:
            found = [index.search(question, COUNT, probes) for question in prepared.questions]
            shares = [prepared.share(at, nearest_of(store, each.nearest)) for at, each in enumerate(found)]
            return float(np.mean(shares)), float(np.mean([each.regenerated for each in found]))

        probes = fewest(index.clusters, lambda probes: tried(probes)[0] >= recall)
        return probes, *tried(probes)
