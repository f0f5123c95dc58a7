"""How fast this machine is at what a search does: measured in less than two seconds, and kept with the index."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from scotfree import _native
from scotfree.rag.calibration import DEVIATIONS
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.index import Index
from scotfree.rag.lending import lent
from scotfree.rag.placement.rows import row_bytes

# By which an index knows them.
_SETTING: Final = "rates"
# Words of the texts that are embedded to find out how long it takes: the last is about a passage.
_WORDS: Final = (6, 24, 80)
# Of each length one text is embedded, and so many at once.
_MANY: Final = 8
_ROUNDS: Final = 3
_EMBED_S_MAX: Final = 1.3
# A file that is read to know the disk, and how often.
_DISK_BYTES: Final = 8 << 20
_READS: Final = 40
_SCANS: Final = 3


@dataclass(frozen=True)
class Rates:
    """What things take, in seconds, as the median of several."""

    machine: str
    # Of texts of so many tokens: what a call of the embedder takes, and each text in it.
    tokens: list[int]
    embed_call_s: list[float]
    embed_text_s: list[float]
    # To read one row and a cluster's rows, when the kernel has them not, and when it has.
    row_cold_s: float
    row_warm_s: float
    cluster_cold_s: float
    cluster_warm_s: float
    # To estimate one passage from its code, and to look up texts.
    code_s: float
    texts_s: float

    def embed_s(self, tokens: Sequence[int]) -> float:
        """What it takes to embed texts of so many tokens in one call."""
        if not tokens:
            return 0.0
        call = float(np.interp(max(tokens), self.tokens, self.embed_call_s))
        return call + float(np.interp(tokens, self.tokens, self.embed_text_s).sum())

    def slowed(self, times: float) -> Rates:
        """As they are where embedding takes so many times as long."""
        return replace(
            self,
            embed_call_s=[times * each_s for each_s in self.embed_call_s],
            embed_text_s=[times * each_s for each_s in self.embed_text_s],
        )

    def shown(self) -> list[str]:
        """In words, a line each."""
        lengths = zip(self.tokens, self.embed_call_s, self.embed_text_s, strict=True)
        embedded = ", ".join(
            f"{tokens * _MANY / (call_s + _MANY * text_s):,.0f} at {tokens}" for tokens, call_s, text_s in lengths
        )
        row_us, cluster_us = (
            [round(each_s * 1e6) for each_s in pair]
            for pair in ((self.row_cold_s, self.row_warm_s), (self.cluster_cold_s, self.cluster_warm_s))
        )
        return [
            f"{self.machine}: tokens embedded a second, {_MANY} texts at once: {embedded} tokens",
            f"a row is read in {row_us[0]:,} us from the disk, {row_us[1]:,} us again; "
            f"a cluster's in {cluster_us[0]:,} and {cluster_us[1]:,} us",
            f"a code is scanned in {self.code_s * 1e9:,.0f} ns, "
            f"texts are looked up in {self.texts_s * 1e6:,.0f} us",
        ]


def of(index: Index, texts: Sequence[str], *, is_new: bool = False) -> Rates:
    """As they are known of this machine, or else measured with some of the index's texts."""
    known = index.passages.setting(_SETTING)
    machine = f"{platform.node()} ({os.cpu_count()} cores)"
    if known and not is_new and (said := json.loads(known))["machine"] == machine:
        return Rates(**said)
    rates = _measured(index, texts, machine)
    index.passages.make_known(_SETTING, json.dumps(asdict(rates)).encode())
    return rates


def _measured(index: Index, texts: Sequence[str], machine: str) -> Rates:
    found = index.snapshot()
    assert found, "whoever plans has looked"
    snapshot = found[1]
    passages = snapshot.passages()
    tokens, call_s, text_s = _embedding(index.embedder, texts)
    row, cluster = row_bytes(snapshot.dimensions), len(passages) // max(snapshot.clusters, 1)
    row_s, cluster_s = (_disk(index, size) for size in (row, row * max(cluster, 1)))
    numbers = passages[:: max(1, len(passages) // 4)][:4]
    return Rates(
        machine,
        tokens,
        call_s,
        text_s,
        *row_s,
        *cluster_s,
        code_s=_scan_s(snapshot) / max(len(passages), 1),
        texts_s=_median(lambda: index.passages.texts(numbers), _READS),
    )


def _embedding(embedder: Embedder, texts: Sequence[str]) -> tuple[list[int], list[float], list[float]]:
    """Tokens, what a call takes and what a text takes, of several lengths, the shortest first."""
    words = " ".join(texts).split() or ["word"]
    samples = [" ".join((words * (1 + length // len(words)))[:length]) for length in _WORDS]
    tokens = [min(embedder.count_tokens(sample), embedder.tokens_max) for sample in samples]
    once: list[list[float]] = [[] for _ in samples]
    many: list[list[float]] = [[] for _ in samples]
    embedder.embed([samples[-1]])
    began = time.perf_counter()
    for _ in range(_ROUNDS):
        for sample, one, several in zip(samples, once, many, strict=True):
            one.append(_seconds(partial(embedder.embed, [sample])))
            several.append(_seconds(partial(embedder.embed, [sample] * _MANY)))
        if time.perf_counter() - began > _EMBED_S_MAX / 2:
            break
    text_s, call_s = [], []
    for one, several in zip(once, many, strict=True):
        first, all_of_them = statistics.median(one), statistics.median(several)
        each = max(0.0, (all_of_them - first) / (_MANY - 1))
        text_s.append(each)
        call_s.append(max(0.0, first - each))
    return tokens, call_s, text_s


def _disk(index: Index, size: int) -> tuple[float, float]:
    """To read so many bytes where the index lies: when the kernel has them not, and when it has."""
    with tempfile.TemporaryFile(dir=index.folder, buffering=0) as file:
        file.write(os.urandom(max(_DISK_BYTES, size)))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        last = max(_DISK_BYTES, size) - size
        places = np.random.default_rng(0).integers(0, last + 1, _READS).tolist()
        found = []
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(2):
            reads = [_seconds(partial(os.pread, file.fileno(), size, place)) for place in places]
            found.append(statistics.median(reads))
    return found[0], found[1]


def _scan_s(snapshot: _native.Snapshot) -> float:
    question = np.full(snapshot.dimensions, snapshot.dimensions**-0.5, np.float32)
    clusters, nothing = snapshot.clusters, _native.PassageSet()
    return _median(
        lambda: snapshot.search(lent(question), 10, clusters, DEVIATIONS, nothing, bare_probes=0), _SCANS
    )


def _median(does: Callable[[], object], times: int) -> float:
    return statistics.median(_seconds(does) for _ in range(times))


def _seconds(does: Callable[[], object]) -> float:
    began = time.perf_counter()
    does()
    return time.perf_counter() - began
