"""What searches take under a placement, as predicted from rates and from what a sample of searches asks for."""

from __future__ import annotations

import resource
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from scotfree.rag.index import Index
from scotfree.rag.placement.choice import Item
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.placement.rates import Rates
from scotfree.rag.placement.rows import row_bytes
from scotfree.rag.placement.sample import Asked
from scotfree.rag.searching import bare_probes

# What a memory of a process is counted in: its pages that are in memory, the second number.
_STATM: Final = Path("/proc/self/statm")
# As many texts of a sample are embedded at once as fill the embedder's memory, before that is measured.
_FILLING: Final = 24
_NUMBER_BYTES: Final = 4
# Of fewer searches that embedded anything nothing is learnt.
_CORRECTING_MIN: Final = 5


@dataclass(frozen=True)
class Figures:
    """What searches take: predicted, or measured."""

    # Of a search that is as the first: nothing is cached, the kernel has none of the exact values.
    median_s: float
    p95_s: float
    # Of the process that searches.
    memory_bytes: int
    # Codes and exact values, texts aside.
    storage_bytes: int
    # Clusters without codes, of which searches look through the nearest alone.
    bare: int

    @classmethod
    def of(cls, latencies_s: Sequence[float], memory_bytes: int, storage_bytes: int, bare: int) -> Figures:
        """Of each search's time."""
        p95_s = float(np.quantile(latencies_s, 0.95, method="higher"))
        return cls(float(np.median(latencies_s)), p95_s, memory_bytes, storage_bytes, bare)


class Costs:
    """Of an index as it is, in this process, on this machine."""

    def __init__(self, index: Index, rates: Rates, asked: Sequence[Asked]) -> None:
        """`asked` are all questions that are to be predicted, or chosen by."""
        clusters = index.clusters()
        self.passages = [len(cluster) for cluster in clusters]
        self._cluster = {number: place for place, cluster in enumerate(clusters) for number in cluster}
        self._dimensions = index.embedder.dimensions
        self._row_bytes = row_bytes(self._dimensions)
        wanted = sorted({number for one in asked for numbers in one.rounds for number in numbers})
        texts = {number: text.embedded for number, text in index.passages.texts(wanted).items()}
        most = index.embedder.tokens_max
        self._tokens = {number: min(index.embedder.count_tokens(text), most) for number, text in texts.items()}
        self.correction = self._correction(index, rates, asked)
        self._rates = rates.slowed(self.correction)
        found = index.snapshot()
        assert found, "whoever plans has looked"
        self._code_bytes = found[1].code_bytes
        size = found[0].stat().st_size
        # As if all had codes.
        self._snapshot_bytes = size + sum(map(self.code_bytes_of, index.stored.placement.bare))
        self._each_s = self._rates.embed_s(list(self._tokens.values())) / max(len(self._tokens), 1)
        self._process_bytes = _process_bytes(index, size, list(texts.values()))

    def _correction(self, index: Index, rates: Rates, asked: Sequence[Asked]) -> float:
        """How many times what was calibrated embedding took: a minute of work says more than a second."""
        ratios = []
        for one in asked:
            kept = index.stored.has([number for numbers in one.rounds for number in numbers])
            made = [[number for number in numbers if number not in kept] for numbers in one.rounds]
            predicted_s = sum(rates.embed_s(self._tokens_of(numbers)) for numbers in made)
            if predicted_s > 0:
                ratios.append(one.embedded_s / predicted_s)
        return statistics.median(ratios) if len(ratios) >= _CORRECTING_MIN else 1.0

    def _tokens_of(self, numbers: Iterable[int]) -> list[int]:
        return [self._tokens[number] for number in numbers if number in self._tokens]

    @property
    def flat_bytes(self) -> int:
        """Of all embeddings as floats of four bytes."""
        return sum(self.passages) * self._dimensions * 4

    @property
    def number_share(self) -> float:
        """What a row takes in memory while it is on the disk alone, as a part of all of it."""
        return _NUMBER_BYTES / self._row_bytes

    def storage_bytes(self, placement: Placement) -> int:
        """On the disk."""
        return self._coded_bytes(placement) + sum(self.bytes_of(cluster) for cluster in placement.kept)

    def memory_bytes(self, placement: Placement) -> int:
        """Of a process that searches."""
        held = sum(self.bytes_of(cluster) for cluster in placement.memory)
        numbers = sum(self.bytes_of(cluster) for cluster in placement.disk) * self.number_share
        return self._process_bytes + self._coded_bytes(placement) + held + round(numbers)

    def _coded_bytes(self, placement: Placement) -> int:
        return self._snapshot_bytes - sum(map(self.code_bytes_of, placement.bare))

    def code_bytes_of(self, cluster: int) -> int:
        """What a cluster's codes take, on the disk and in memory."""
        return self.passages[cluster] * self._code_bytes

    def bytes_of(self, cluster: int) -> int:
        """What a cluster's rows take in the file, and as much in memory."""
        return self.passages[cluster] * self._row_bytes

    def predicted(self, placement: Placement, sample: Iterable[Asked]) -> Figures:
        """What searches of these questions will take."""
        latencies = [self.latency_s(placement, asked) for asked in sample]
        sizes = self.memory_bytes(placement), self.storage_bytes(placement)
        return Figures.of(latencies, *sizes, len(placement.bare))

    def latency_s(self, placement: Placement, asked: Asked) -> float:
        """What one will take: its embedding, the scan, and what it wants exact."""
        rates = self._rates
        found = rates.embed_s([asked.tokens]) + rates.code_s * sum(self.passages) + rates.texts_s
        whole = sum(self._whole_s(cluster) for cluster in asked.near & placement.bare)
        return found + whole + sum(self._round_s(placement, numbers) for numbers in asked.coded)

    def _whole_s(self, cluster: int) -> float:
        """What it takes to embed all of a cluster, its passages as long as those of the sample."""
        return self._rates.texts_s + self.passages[cluster] * self._each_s

    def _round_s(self, placement: Placement, numbers: Sequence[int]) -> float:
        numbers = [number for number in numbers if self._cluster.get(number) not in placement.bare]
        if not numbers:
            return 0.0
        of = [self._cluster.get(number) for number in numbers]
        read = sum(cluster in placement.disk for cluster in of)
        made = [number for number, cluster in zip(numbers, of, strict=True) if cluster not in placement.kept]
        embedded_s = self._rates.embed_s(self._tokens_of(made))
        return self._rates.texts_s + read * self._rates.row_cold_s + embedded_s

    def reading(self, sample: Sequence[Asked]) -> list[Item]:
        """What each cluster's rows on the disk save."""

        def saving(numbers: Sequence[int]) -> float:
            return self._rates.embed_s(self._tokens_of(numbers)) / len(numbers) - self._rates.row_cold_s

        return self._items(sample, saving)

    def holding(self, sample: Sequence[Asked]) -> list[Item]:
        """What it saves besides that each cluster's rows are in memory."""
        return self._items(sample, lambda _: self._rates.row_cold_s)

    def coding(self, sample: Sequence[Asked]) -> list[Item]:
        """What each cluster's codes save, as if one more question were near so many as are looked through."""
        near_of = Counter(cluster for asked in sample for cluster in asked.near)
        chance = min(1.0, bare_probes(len(self.passages)) / max(len(self.passages), 1))
        needed_s: dict[int, float] = defaultdict(float)
        for asked in sample:
            for numbers in asked.coded:
                for number in numbers:
                    if (cluster := self._cluster.get(number)) is not None:
                        needed_s[cluster] += self._each_s
        return [
            Item(
                cluster,
                max(0.0, (near_of[cluster] + chance) * self._whole_s(cluster) - needed_s[cluster])
                / (len(sample) + 1),
                self.code_bytes_of(cluster),
            )
            for cluster, count in enumerate(self.passages)
            if count
        ]

    def _items(self, sample: Sequence[Asked], saving: Callable[[Sequence[int]], float]) -> list[Item]:
        """Average savings of a question, as if one more had asked each cluster by its size."""
        total: dict[int, float] = defaultdict(float)
        for asked in sample:
            for numbers in asked.coded:
                each_s = saving(numbers)
                for number in numbers:
                    if (cluster := self._cluster.get(number)) is not None:
                        total[cluster] += each_s
        average = sum(total.values()) / max(len(sample), 1)
        return [
            Item(
                cluster,
                (total[cluster] + average * count / max(sum(self.passages), 1)) / (len(sample) + 1),
                self.bytes_of(cluster),
            )
            for cluster, count in enumerate(self.passages)
            if count
        ]


def resident_bytes() -> int:
    """What of this process is in memory."""
    return int(_STATM.read_text().split()[1]) * resource.getpagesize()


def _process_bytes(index: Index, snapshot_bytes: int, texts: Sequence[str]) -> int:
    """The program, the model and what its runs take, and the cache when it is full."""
    longest = sorted(texts, key=len)[-_FILLING:]
    index.embedder.embed(longest)
    cached, cached_max = index.cache_bytes
    own = snapshot_bytes + cached + index.stored.memory_bytes
    return max(0, resident_bytes() - own) + cached_max
