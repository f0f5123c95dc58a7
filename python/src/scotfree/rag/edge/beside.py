"""EdgeRAG's clusters beside an index, whose texts they share: built, brought up to date, asked.

They lie in the folder `edgerag` of the index: a folder for each time that they were written, `current.json`, which
says which of them counts and how it was built, and `threshold.json`, what Algorithm 3 has learnt. What is written
is written beside and counts when `current.json` says so: a kill leaves what was there before.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import random
import shutil
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag import calibration
from scotfree.rag.copies import Copies
from scotfree.rag.edge.index import Configuration, EdgeIndex, Found, Settings
from scotfree.rag.embed.batches import BATCH_PASSAGES
from scotfree.rag.embed.embedder import Vectors, embed, embed_questions
from scotfree.rag.evaluation.corpus import embeddings
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.filters import EVERYTHING
from scotfree.rag.index import Index
from scotfree.rag.pending import Scored
from scotfree.rag.searching import Answer, Hit, hit
from scotfree.rag.trouble import RagError

SLO_NS: Final = 1e9
CACHE_BYTES: Final = 64 << 20
_FOLDER: Final = "edgerag"
_CURRENT: Final = "current.json"
_THRESHOLD: Final = "threshold.json"
_LOCK: Final = "lock"
_SEED: Final = 1
# Passages whose embedding is timed.
_TIMED: Final = 64
# What a file that was cut or overwritten makes of reading it.
_DAMAGED: Final = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Wanted:
    """How clusters are to be: where nothing is said, as they are, or as usual."""

    # Time in which a question must be answered; clusters that take longer to embed are stored.
    slo_ns: float | None = None
    # Of the ten nearest passages, as many as the clusters that are looked at have.
    recall: float | None = None


@dataclass(frozen=True)
class Built:
    """What is known of clusters that are there."""

    number: int
    slo_ns: float
    recall: float
    # What a letter takes to be embedded here: the thesis' GenRate, turned round.
    letter_ns: float
    # Clusters that a question looks at.
    probes: int

    def suits(self, wanted: Wanted) -> bool:
        """Whether they are as is wanted."""
        return wanted.slo_ns in (None, self.slo_ns) and wanted.recall in (None, self.recall)


class EdgeRag:
    """The paper's index beside ours, open: its cache is empty at first, its threshold as it was left."""

    def __init__(self, index: Index, built: Built, edge: EdgeIndex) -> None:
        """Of what `opened` has found or made."""
        self.built = built
        self.edge = edge
        self._index = index

    @classmethod
    def opened(
        cls, index: Index, wanted: Wanted, cache_bytes: int = CACHE_BYTES, shown: Shown | None = None
    ) -> EdgeRag:
        """Builds what is not there, and brings what is there up to the index's passages.

        A `RagError` says that the index is empty, that another process builds, or that files are damaged.
        """
        shown = shown or Shown(is_quiet=True)
        folder = index.folder / _FOLDER
        folder.mkdir(exist_ok=True)
        numbers = [number for number, _, _ in index.passages.places()]
        if not numbers:
            raise RagError(
                f"build EdgeRAG's clusters in {folder}: the index is empty", "fill it: scot rag index FOLDER"
            )
        with _alone(folder):
            built = _read(folder)
            if built is None or not built.suits(wanted):
                built = _build(index, folder, numbers, built, wanted, shown)
            edge = _open(index, folder, built, cache_bytes)
            if set(edge.passages) != set(numbers):
                built = _change(index, folder, numbers, (built, edge), shown)
                edge = _open(index, folder, built, cache_bytes)
        _resume(edge, folder)
        return cls(index, built, edge)

    def search(self, question: str, count: int, probes: int | None = None, *, is_distinct: bool = False) -> Answer:
        """The nearest passages of as many clusters as were found to be enough, or of so many.

        `is_distinct`: the same passage is shown once, as `Index.search` does.
        """
        answer = Answer()
        with answer.stage("embed query"):
            vector = embed_questions(self._index.embedder, [question])[0]
        # What is shown once leaves room for others.
        most = len(self.edge.passages) if is_distinct else count
        found = self._found(vector, most, probes or self.built.probes)
        answer.stages_ns |= found.stages_ns
        with answer.stage("texts"):
            answer.hits = self._distinct(found, count) if is_distinct else self._hits(found.nearest)
        answer.cached, answer.loaded, answer.regenerated = found.cached, found.loaded, found.regenerated
        return answer

    def _hits(self, nearest: list[Scored], copies: Copies | None = None) -> list[Hit]:
        texts = self._index.passages.texts([number for number, _ in nearest])
        # One that was removed meanwhile has no text any more.
        return [hit(text, similarity, copies) for number, similarity in nearest if (text := texts.get(number))]

    def _distinct(self, found: Found, count: int) -> list[Hit]:
        """As many, each passage once; of all that were near some at a time."""
        copies = Copies(self._index.passages)
        kept: list[Scored] = []
        outside: set[int] = set()
        for at in range(0, len(found.nearest), max(1, count)):
            kept += [one for one in found.nearest[at : at + count] if one[0] not in outside]
            texts = self._index.passages.texts([number for number, _ in kept])
            kept = [one for one in kept if one[0] in texts]
            outside |= copies.among([texts[number] for number, _ in kept], EVERYTHING)
            kept = [one for one in kept if one[0] not in outside]
            if len(kept) >= count:
                break
        return self._hits(kept[:count], copies)

    def _found(self, vector: Vectors, count: int, probes: int) -> Found:
        try:
            return self.edge.search(vector, count, probes)
        except (OSError, ValueError, EOFError) as error:
            raise _damaged(self._index.folder / _FOLDER, error) from None

    def close(self) -> None:
        """Keeps what the threshold has learnt; the index is left open."""
        state = {"threshold_ns": self.edge.threshold_ns, "average_ns": self.edge.average_ns}
        _write(self._index.folder / _FOLDER / _THRESHOLD, state)

    def __enter__(self) -> EdgeRag:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / _LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RagError(
                f"open EdgeRAG's clusters in {folder}: another process builds them", "wait for it to end"
            ) from None
        yield


def _read(folder: Path) -> Built | None:
    path = folder / _CURRENT
    if not path.exists():
        return None
    try:
        return Built(**json.loads(path.read_text()))
    except _DAMAGED as error:
        raise _damaged(folder, error) from None


def _damaged(folder: Path, error: Exception) -> RagError:
    return RagError(
        f"read EdgeRAG's clusters in {folder}: {error}",
        "remove that folder; the next call builds it anew, and the index beside it is left alone",
    )


def _open(index: Index, folder: Path, built: Built, cache_bytes: int = 0) -> EdgeIndex:
    settings = Settings(Configuration.EDGERAG, built.slo_ns, built.letter_ns, cache_bytes)
    try:
        return EdgeIndex.opened(folder / str(built.number), index.embedder, _texts_of(index), settings)
    except _DAMAGED as error:
        raise _damaged(folder, error) from None


def _texts_of(index: Index) -> Any:
    def texts(numbers: Sequence[int]) -> list[str]:
        found = index.passages.texts(numbers)
        # One that another process has removed meanwhile is near to nothing that is asked.
        return [found[number].embedded if number in found else "" for number in numbers]

    return texts


def _build(
    index: Index, folder: Path, numbers: list[int], before: Built | None, wanted: Wanted, shown: Shown
) -> Built:
    """All of it: embeds every passage once, and keeps of that what the SLO says (Algorithm 1)."""
    texts = _texts_of(index)
    whole = texts(numbers)
    with shown.bar("embedding", len(numbers), "passage") as progress:
        # On the disk until the clusters are: an interrupted build goes on where it was.
        vectors = embeddings(folder, index.embedder, whole, progress)
    slo_ns = wanted.slo_ns or (before.slo_ns if before else SLO_NS)
    recall = wanted.recall or (before.recall if before else calibration.RECALL)
    built = Built(1 + (before.number if before else 0), slo_ns, recall, _letter_ns(index, whole), 1)
    own = folder / str(built.number)
    _remove(own)
    with shown.wait("clustering"):
        edge = EdgeIndex(own, index.embedder, texts, Settings(slo_ns=slo_ns, letter_ns=built.letter_ns))
        edge.build(numbers, vectors, round(math.sqrt(len(numbers))))
        edge.save()
        built = replace(built, probes=_probes(index, edge, (numbers, vectors), whole, recall))
    # What it has learnt was of other costs.
    (folder / _THRESHOLD).unlink(missing_ok=True)
    _settle(folder, built)
    return built


def _change(index: Index, folder: Path, numbers: list[int], now: tuple[Built, EdgeIndex], shown: Shown) -> Built:
    """Takes passages out and puts others in (4.5.4); where most are others, clusters are learnt anew."""
    built, edge = now
    known = set(edge.passages)
    new = [number for number in numbers if number not in known]
    if len(new) > len(known):
        return _build(index, folder, numbers, built, Wanted(built.slo_ns, built.recall), shown)
    after = replace(built, number=built.number + 1)
    own = folder / str(after.number)
    _remove(own)
    shutil.copytree(folder / str(built.number), own)
    edge = _open(index, folder, after)
    texts = _texts_of(index)
    with shown.bar("embedding", len(new), "passage") as progress:
        for at in range(0, len(new), BATCH_PASSAGES):
            part = new[at : at + BATCH_PASSAGES]
            words = texts(part)
            for number, text, vector in zip(part, words, embed(index.embedder, words), strict=True):
                edge.insert(number, text, vector)
            progress(len(part))
    for number in known - set(numbers):
        edge.remove(number)
    edge.save()
    after = replace(after, probes=min(after.probes, edge.clusters))
    _settle(folder, after)
    return after


def _letter_ns(index: Index, texts: list[str]) -> float:
    chosen = random.Random(_SEED).sample(texts, min(_TIMED, len(texts)))
    embed(index.embedder, chosen[:1])
    began = time.perf_counter_ns()
    embed(index.embedder, chosen)
    return (time.perf_counter_ns() - began) / max(1, sum(map(len, chosen)))


def _probes(
    index: Index, edge: EdgeIndex, rows: tuple[list[int], Vectors], texts: list[str], recall: float
) -> int:
    """The fewest clusters that have so much of the ten nearest, of questions drawn from the texts."""
    numbers, vectors = rows
    chance = random.Random(_SEED)
    drawn = sorted(chance.sample(range(len(texts)), min(calibration.QUESTIONS, len(texts))))
    asked = embed_questions(index.embedder, [calibration.sentence(texts[row], chance) for row in drawn])
    count = min(calibration.COUNT, len(numbers))
    ranks: list[int] = []
    for question in asked:
        similar = np.asarray(vectors) @ question
        of = edge.ranks(question)
        ranks += [of[numbers[row]] for row in np.argpartition(-similar, count - 1)[:count]]
    return sorted(ranks)[max(0, math.ceil(recall * len(ranks)) - 1)] + 1


def _settle(folder: Path, built: Built) -> None:
    """These count from now on; all others go, and the embeddings that they were built of."""
    _write(folder / _CURRENT, asdict(built))
    for path in folder.iterdir():
        if path.name.isdigit() and path.name != str(built.number):
            _remove(path)
        elif path.name.startswith("embeddings-"):
            path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _write(path: Path, said: dict[str, Any]) -> None:
    """Whole or not at all."""
    part = path.with_suffix(".part")
    with part.open("w") as file:
        json.dump(said, file)
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)


def _resume(edge: EdgeIndex, folder: Path) -> None:
    """With what the threshold was left at; what cannot be read of it was of no other use."""
    try:
        state = json.loads((folder / _THRESHOLD).read_text())
        threshold_ns, average_ns = float(state["threshold_ns"]), state["average_ns"]
        if not 0 <= threshold_ns < math.inf or not (average_ns is None or 0 <= float(average_ns) < math.inf):
            return
    except _DAMAGED:
        return
    edge.resume(threshold_ns, average_ns)
