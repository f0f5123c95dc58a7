"""The index that nobody has told anything, beside a flat one with the same embedder: whole questions, in turns.

A question goes from its words to ten passages with their texts. Flat multiplies the question's embedding with all
others, in memory, on as many threads as numpy takes, and reads the texts of the ten from the same kind of file.
Who comes first changes with each question. Nothing is set by the questions that are asked, and nothing is cached
from one to the next.

Memory is that of a process of its own (see `rag_glosses`): `mapped` is what of the index's files is resident, the
vectors, `anonymous` what a process has besides, which does not grow with the passages.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench import rag_collections, rag_glosses
from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
from scotfree.rag.evaluation.corpus import Place
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.modes import Mode, Opening, Searcher, build_ours, build_theirs, opened
from scotfree.rag.evaluation.prepared import Prepared

OURS, FLAT = "ours", "flat"
# Neither has a limit to answer in.
_OPENING = Opening(cache_bytes=0, probes=None, slo_ns=1e9, letter_ns=1.0)


@dataclass
class _Told:
    """Of each question what it took, on the clock and of processors, and which passages were found."""

    clock_ns: list[int] = field(default_factory=list)
    cpu_ns: list[int] = field(default_factory=list)
    found: list[list[Place]] = field(default_factory=list)
    regenerated: int = 0


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection."""
    prepared = rag_collections.prepared(arm, settings["questions"])
    _build(prepared)
    told = _in_turns(prepared, settings["rounds"])
    found: dict[str, float] = {"passages": len(prepared.parts), "questions": len(prepared.questions)}
    for name, of in told.items():
        found |= _numbers(name, of)
        found[f"{name}_recall"] = _recall(prepared, of)
    found["embedded_again"] = told[OURS].regenerated
    for metric in ("p50_ms", "p95_ms", "cpu_ms"):
        found[f"{metric.removesuffix('_ms')}_times"] = found[f"{OURS}_{metric}"] / found[f"{FLAT}_{metric}"]
    return found | _sizes(prepared)


def _build(prepared: Prepared) -> None:
    documents = prepared.collection.documents
    for mode in (Mode.SMALLEST, Mode.OURS):
        # The texts of the first are Flat's.
        build_ours(mode, prepared.base, documents, prepared.known, lambda _: None)
    build_theirs(Mode.FLAT, prepared.base, (prepared.parts, prepared.vectors), prepared.known, _OPENING)


def _in_turns(prepared: Prepared, rounds: int) -> dict[str, _Told]:
    model = OnnxEmbedder(threads=rag_collections.THREADS)
    texts = list(prepared.collection.questions.values())
    told = {OURS: _Told(), FLAT: _Told()}
    with (
        opened(Mode.OURS, prepared.base, model, _OPENING) as ours,
        opened(Mode.FLAT, prepared.base, model, _OPENING) as flat,
    ):
        searchers = {OURS: ours, FLAT: flat}
        for searcher in searchers.values():
            # What is done once is no question's.
            searcher.search(texts[0], COUNT)
        for turn in range(rounds):
            for at, text in enumerate(texts):
                names = [OURS, FLAT] if (turn + at) % 2 else [FLAT, OURS]
                for name in names:
                    _ask(searchers[name], text, told[name])
    return told


def _ask(searcher: Searcher, text: str, told: _Told) -> None:
    clock_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
    outcome = searcher.search(text, COUNT)
    told.clock_ns.append(time.perf_counter_ns() - clock_ns)
    told.cpu_ns.append(time.process_time_ns() - cpu_ns)
    told.found.append(outcome.places)
    told.regenerated += outcome.regenerated


def _numbers(name: str, told: _Told) -> dict[str, float]:
    p50, p95 = np.percentile(told.clock_ns, (50, 95))
    cpu = float(np.mean(told.cpu_ns))
    return {f"{name}_p50_ms": p50 / 1e6, f"{name}_p95_ms": p95 / 1e6, f"{name}_cpu_ms": cpu / 1e6}


def _recall(prepared: Prepared, told: _Told) -> float:
    count = len(prepared.questions)
    return float(np.mean([prepared.share(at % count, found) for at, found in enumerate(told.found)]))


def _sizes(prepared: Prepared) -> dict[str, float]:
    flat = prepared.vectors.nbytes
    folder = rag_glosses.built(prepared, ["ours"])["ours"]
    disk, memory = rag_glosses.disk_bytes(folder), rag_glosses.asked_apart("ours", folder, 0)
    return {
        "disk_percent": 100 * disk / flat,
        "mapped_percent": 100 * (memory["resident"] - memory["anonymous"]) / flat,
        "resident_percent": 100 * memory["resident"] / flat,
        "anonymous_mib": memory["anonymous"] / 2**20,
    }
