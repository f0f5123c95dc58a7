"""The planner on small devices: what it predicts and what is measured, and policies that ask no questions.

Each policy keeps exact values of as many clusters as the budget has room for, or codes of as many, where it has no
room for all codes. Each is measured with the same questions, none of which has chosen anything. What is kept is
looked up and not embedded: the lab's device is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bench import rag_collections
from bench.rag_collections import THREADS
from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
from scotfree.rag.evaluation.modes import Mode, build_ours
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.index import Index
from scotfree.rag.placement.budget import Budget
from scotfree.rag.placement.costs import Figures
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.placement.planner import Planner

_SEED = 1
_PLANNED = "planned"


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the device, which the lab sees to."""
    prepared = rag_collections.prepared(settings["collection"], settings["questions"])
    # Of its own: what is kept beside the codes is of nobody else's measurement.
    base = prepared.base / "planned"
    build_ours(Mode.SMALLEST, base, prepared.collection.documents, prepared.known, lambda _: None)
    folder, questions = Mode.SMALLEST.folder(base), list(prepared.collection.questions.values())
    with Index(folder, prepared.known) as keeping:
        keeping.place(Placement())
        with Index(folder, OnnxEmbedder(threads=THREADS), cache_bytes=0) as index:
            planner = Planner(index, questions, is_calibrated_anew=True)
            plan = planner.plan(Budget(storage=settings["storage"]))
            policies = {_PLANNED: plan.placement} | _fixed(planner, plan.budget, settings["policies"])
            figures, found = {}, {}
            for name, placement in policies.items():
                keeping.place(placement)
                index.refresh()
                figures[name] = planner.measured()
                found[f"{name}_kept_percent"] = _kept(planner)
                found[f"{name}_recall"] = _recall(prepared, keeping, planner)
                found[f"{name}_clusters"] = len(placement.kept | placement.bare)
    room_bytes = plan.budget.storage_bytes(plan.flat_bytes)
    found["of_budget_percent"] = 100 * figures[_PLANNED].storage_bytes / room_bytes
    found |= {f"{name}_p50_ms": of.median_s * 1e3 for name, of in figures.items()}
    return found | _beside(plan.predicted, figures) | {"questions": len(planner.checking), "asked": planner.asked}


def _fixed(planner: Planner, budget: Budget, names: Sequence[str]) -> dict[str, Placement]:
    """Policies by their names: nothing; and clusters by their size or by chance, as many as there is room for."""
    sizes = planner.costs.passages
    by_size = sorted(range(len(sizes)), key=lambda cluster: sizes[cluster])
    orders: dict[str, list[int]] = {
        "nothing": [],
        "smallest": by_size,
        "largest": by_size[::-1],
        "any": np.random.default_rng(_SEED).permutation(len(sizes)).tolist(),
    }
    return {name: _filled(planner, budget, orders[name]) for name in names}


def _filled(planner: Planner, budget: Budget, order: Iterable[int]) -> Placement:
    costs = planner.costs
    room = budget.storage_bytes(costs.flat_bytes) - costs.storage_bytes(Placement())
    kept, bare = [], []
    for cluster in order:
        if room < 0:
            bare.append(cluster)
            room += costs.code_bytes_of(cluster)
        elif not bare and costs.bytes_of(cluster) <= room:
            kept.append(cluster)
            room -= costs.bytes_of(cluster)
    return Placement.of(disk=kept, bare=bare)


def _recall(prepared: Prepared, index: Index, planner: Planner) -> float:
    """Of the questions that are measured: how much of what exact search finds is found."""
    numbers = {question: at for at, question in enumerate(prepared.collection.questions.values())}
    index.refresh()
    shares = [
        prepared.share(
            numbers[one.question],
            [(hit.document, hit.start) for hit in index.search(one.question, planner.count).hits],
        )
        for one in planner.checking
    ]
    return sum(shares) / len(shares)


def _kept(planner: Planner) -> float:
    """Of a hundred passages whose exact values are asked for, those that are kept."""
    asked = [number for one in planner.checking for numbers in one.rounds for number in numbers]
    kept = planner.index.stored.has(asked)
    return 100 * sum(number in kept for number in asked) / max(1, len(asked))


def _beside(predicted: Figures, figures: dict[str, Figures]) -> dict[str, float]:
    planned = figures[_PLANNED]
    best = min(of.median_s for name, of in figures.items() if name != _PLANNED)
    return {
        "predicted_p50_ms": predicted.median_s * 1e3,
        "predicted_p95_ms": predicted.p95_s * 1e3,
        "planned_p95_ms": planned.p95_s * 1e3,
        "off_p50_percent": 100 * abs(predicted.median_s / planned.median_s - 1),
        "off_p95_percent": 100 * abs(predicted.p95_s / planned.p95_s - 1),
        "slower_than_best_percent": 100 * (planned.median_s / best - 1),
        "off_memory_percent": 100 * abs(predicted.memory_bytes / planned.memory_bytes - 1),
    }
