"""The planner: of each cluster what to keep, so that searches are fast within memory and storage.

A sample of questions says which clusters are asked for exact values, rates say what that takes on this machine.
Every other question of the sample chooses, the others are predicted, and measured when the plan is in place: they
are new to the plan, as users' questions will be. A bound of latency is to be met in both halves.
"""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from scotfree.rag.index import Index
from scotfree.rag.placement import choice, rates, sample
from scotfree.rag.placement.budget import Budget
from scotfree.rag.placement.costs import Costs, Figures, resident_bytes
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.trouble import RagError

# Fewer questions both choose and are predicted.
_APART_MIN: Final = 8
# Parts of all rows that the frontier shows, and before them of all codes that it does without.
_SHARES: Final = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_BARE_SHARES: Final = (0.5, 0.25, 0.1)
# By how much less than codes take a file may become smaller: what follows them begins at a multiple of it.
_SECTION_BYTES: Final = 64
# Texts that the embedder is measured with.
_TEXTS: Final = 16


@dataclass(frozen=True)
class Plan:
    """What to keep, and what searches will take."""

    budget: Budget
    placement: Placement
    predicted: Figures
    # With ever more codes, then with ever more exact values on the disk, the worthiest first.
    frontier: list[Figures]
    # Of the budget what cannot be met, and what it would take; then this is the nearest plan.
    missing: list[str]
    # Of the embeddings as floats of four bytes.
    flat_bytes: int

    def written(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self) | {"placement": self.placement.written()}


class Planner:
    """Plans for one index with one sample of questions."""

    def __init__(
        self,
        index: Index,
        questions: Sequence[str] | None = None,
        *,
        count: int = 10,
        is_calibrated_anew: bool = False,
    ) -> None:
        """Searches for `count` passages for each question; without questions some are drawn from the passages.

        A `RagError` says that there is nothing to plan for.
        """
        if not any(index.clusters()):
            raise RagError(f"plan for the index {index.folder}: it has no codes yet", "index documents first")
        self.index, self.count = index, count
        asked = sample.asked(index, questions or sample.drawn(index), count)
        is_apart = len(asked) >= _APART_MIN
        self.choosing, self.checking = (asked[::2], asked[1::2]) if is_apart else (asked, asked)
        self.is_apart = is_apart
        numbers = [number for cluster in index.clusters() for number in cluster]
        texts = [text.embedded for text in index.passages.texts(numbers[:_TEXTS]).values()]
        self.rates = rates.of(index, texts, is_new=is_calibrated_anew)
        self.costs = Costs(index, self.rates, asked)

    @property
    def asked(self) -> float:
        """Of how many passages a search wants exact values, on average."""
        counts = [sum(map(len, one.rounds)) for one in self.checking]
        return sum(counts) / len(counts)

    def plan(self, budget: Budget) -> Plan:
        """One that meets the latency and needs all it keeps; if none does or none is asked for, the fastest."""
        steps = self._steps(budget)
        kept = self._thinned(steps[self._first(steps, budget.latency_s())], budget.latency_s())
        predicted = self.predicted(kept)
        missing = self._missing(budget, kept)
        return Plan(budget, kept, predicted, self._frontier(), missing, self.costs.flat_bytes)

    def takes_rows_away(self, plan: Plan) -> bool:
        """Whether clusters have rows now that have none under a plan."""
        return bool(self.index.stored.exact and self.index.stored.placement.kept - plan.placement.kept)

    def predicted(self, placement: Placement) -> Figures:
        """What searches will take."""
        return self.costs.predicted(placement, self.checking)

    def measured(self) -> Figures:
        """What searches take as the index is now, each as if it were the first."""
        latencies = []
        for one in self.checking:
            self.index.cool()
            began = time.perf_counter()
            self.index.search(one.question, self.count)
            latencies.append(time.perf_counter() - began)
        found = self.index.snapshot()
        assert found, "it has been planned for"
        storage_bytes = found[0].stat().st_size + self.index.stored.file_bytes
        bare = len(self.index.stored.placement.bare)
        return Figures.of(latencies, resident_bytes(), storage_bytes, bare)

    def _steps(self, budget: Budget) -> list[Placement]:
        """Placements within memory and storage, each keeping more: rows on the disk, then in memory."""
        costs, nothing = self.costs, self._fewest(budget)
        room = budget.storage_bytes(costs.flat_bytes) - costs.storage_bytes(nothing)
        free = budget.memory_bytes() - costs.memory_bytes(nothing)
        # On the disk a row takes a little memory, too.
        coded = [item for item in costs.reading(self.choosing) if item.key not in nothing.bare]
        disk = choice.chosen(coded, min(room, free / costs.number_share))
        steps, keys = _growing(disk, nothing), {item.key for item in disk}
        left = free - sum(item.bytes for item in disk) * costs.number_share
        held = choice.chosen([item for item in costs.holding(self.choosing) if item.key in keys], left)
        held_of = [item.key for item in held]
        return steps + [Placement.of(held_of[:end], keys, nothing.bare) for end in range(1, len(held) + 1)]

    def _fewest(self, budget: Budget) -> Placement:
        """Without exact values, and without those codes that have no room.

        What even without all of them would be too little is left aside, and said to be missing.
        """
        costs, everything = self.costs, Placement()
        lacking = (
            costs.storage_bytes(everything) - budget.storage_bytes(costs.flat_bytes),
            costs.memory_bytes(everything) - budget.memory_bytes(),
        )
        codes = costs.coding(self.choosing)
        most = sum(item.bytes for item in codes)
        wanted = [bytes_ + _SECTION_BYTES for bytes_ in lacking if 0 < bytes_ <= most]
        return Placement.of(bare=[item.key for item in choice.given_up(codes, max(wanted, default=0))])

    def _first(self, steps: Sequence[Placement], latency_s: float) -> int:
        """Of steps, each faster than the one before, the first that is fast enough; else the last."""
        if math.isinf(latency_s):
            return len(steps) - 1
        found = bisect.bisect_left(steps, -latency_s, key=lambda step: -self._slow_s(step))
        return min(found, len(steps) - 1)

    def _thinned(self, placement: Placement, latency_s: float) -> Placement:
        """Without what it is fast enough without: the choice was by averages, the latency is of the slowest."""
        if math.isinf(latency_s):
            return placement
        for item in reversed(choice.ordered(self.costs.reading(self.choosing))):
            without = Placement.of(placement.memory - {item.key}, placement.disk - {item.key}, placement.bare)
            if without != placement and self._slow_s(without) <= latency_s:
                placement = without
        return placement

    def _frontier(self) -> list[Figures]:
        codes = self.costs.coding(self.choosing)
        all_bytes = sum(item.bytes for item in codes)
        fewer = [choice.given_up(codes, share * all_bytes) for share in _BARE_SHARES]
        bare = dict.fromkeys(Placement.of(bare=[item.key for item in items]) for items in fewer)
        steps = _growing(choice.ordered(self.costs.reading(self.choosing)), Placement())
        stored = [self.costs.storage_bytes(step) for step in steps]
        wanted = [stored[0] + share * (stored[-1] - stored[0]) for share in _SHARES]
        places = sorted({bisect.bisect_right(stored, bytes_max) - 1 for bytes_max in wanted})
        return [self.predicted(step) for step in (*bare, *(steps[place] for place in places))]

    def _slow_s(self, placement: Placement) -> float:
        """What 95 searches in 100 do not exceed, in whichever half of the sample that is more."""
        halves = (self.choosing, self.checking)
        return max(self.costs.predicted(placement, half).p95_s for half in halves)

    def _missing(self, budget: Budget, kept: Placement) -> list[str]:
        least = Placement.of(bare=range(len(self.costs.passages)))
        storage, memory = self.costs.storage_bytes(least), self.costs.memory_bytes(least)
        storage_max = budget.storage_bytes(self.costs.flat_bytes)
        found = []
        if storage > storage_max:
            found.append(_more("storage", "axes, centroids and places", storage, storage_max))
        if memory > budget.memory_bytes():
            what = "the model, its runtime, axes, centroids and places"
            found.append(_more("memory", what, memory, budget.memory_bytes()))
        if self._slow_s(kept) > budget.latency_s():
            found.append(self._too_slow(self._slow_s(kept), budget.latency_s()))
        return found

    def _too_slow(self, slow_s: float, latency_s: float) -> str:
        slow = f"latency: 95 of 100 searches take up to {slow_s * 1e3:,.0f} ms, not {latency_s * 1e3:g} ms"
        steps = _growing(choice.ordered(self.costs.reading(self.choosing)), Placement())
        placement = self._thinned(steps[self._first(steps, latency_s)], latency_s)
        if self._slow_s(placement) > latency_s:
            return f"{slow}; with all exact values on the disk they take {self._slow_s(placement) * 1e3:,.0f} ms"
        enough = self.predicted(placement)
        share = enough.storage_bytes / self.costs.flat_bytes
        storage, memory = (value / 1e6 for value in (enough.storage_bytes, enough.memory_bytes))
        return f"{slow}; that takes storage of {storage:,.1f} MB ({share:.1%}) and memory of {memory:,.0f} MB"


def _growing(items: Sequence[choice.Item], nothing: Placement) -> list[Placement]:
    """Placements that have, more than nothing, ever more of these on the disk."""
    keys = [item.key for item in items]
    return [Placement.of(disk=keys[:end], bare=nothing.bare) for end in range(len(keys) + 1)]


def _more(kind: str, what: str, bytes_min: float, bytes_max: float) -> str:
    return f"{kind}: {what} alone take {size(bytes_min)}, not {size(bytes_max)}"


def size(bytes_: float) -> str:
    """In words."""
    return f"{bytes_ / 1e6:,.1f} MB" if bytes_ >= 1e6 else f"{bytes_ / 1e3:,.1f} kB"
