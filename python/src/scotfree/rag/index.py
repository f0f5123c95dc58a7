"""An index of documents in a folder: built, changed, searched.

The folder has `passages.sqlite` (texts, and what changed since the last snapshot) and one `codes-N.scot` (what is
searched; see crates/scotfree-retrieval). A search takes the codes' estimates, and embeds again the few passages
whose bound says that they may be among the nearest.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag import clustering
from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.passages import Passages, Text
from scotfree.rag.splitting import Splitter
from scotfree.rag.trouble import RagError

# Standard errors that an estimate's bound is away: recall beside how much is embedded again.
DEVIATIONS: Final = 1.9
# Passages that are embedded at once, after as many as are looked for: more are seldom needed by then.
_ASKED: Final = 4
# Passages that are embedded before a document's are written: a build that is killed begins there again.
_BATCH_PASSAGES: Final = 512
# Changes are searched one by one until they are so great a part of all.
_PENDING_MAX: Final = 0.1
# Below, a cluster has too few embeddings to be learnt from.
_CLUSTER_MIN: Final = 39
_SEED: Final = 1
_PASSAGES: Final = "passages.sqlite"
_LOCK: Final = "lock"
_SNAPSHOT: Final = "codes-{}.scot"
# Also what was being written when its process was killed.
_SNAPSHOTS: Final = "codes-*"


@dataclass(frozen=True)
class Hit:
    """A passage that was found."""

    text: str
    document: str
    # The letter of the document at which it begins.
    start: int
    # Inner product with the question.
    similarity: float
    metadata: dict[str, Any]


@dataclass
class Answer:
    """What was found, and what it took."""

    hits: list[Hit] = field(default_factory=list)
    # Nanoseconds of each stage, in the order in which a search passes them.
    stages_ns: dict[str, int] = field(default_factory=dict)
    # Passages whose similarity was estimated, and which were embedded again.
    estimated: int = 0
    regenerated: int = 0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Counts the time of what is within as that stage's."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.stages_ns[name] = self.stages_ns.get(name, 0) + time.perf_counter_ns() - began


@dataclass(frozen=True)
class Changes:
    """What an update did."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    same: int = 0
    # Passages that were embedded: those whose text was not there.
    embedded: int = 0


class Index:
    """An index, open. One may change it at a time; searches see what was there when they began."""

    def __init__(self, folder: Path, embedder: Embedder, *, bits: int = 1) -> None:
        """Opens it, or begins an empty one; a `RagError` says what is wrong with the folder."""
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            raise RagError(f"open the index {folder}: it is no folder", "name another")
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._embedder = embedder
        self._splitter = Splitter(embedder)
        self._passages = Passages(folder / _PASSAGES)
        self._bits = bits
        self._check_model()
        self._load()

    @classmethod
    def build(cls, folder: Path, documents: Iterable[Document], embedder: Embedder, *, bits: int = 1) -> Index:
        """An index of these documents; what of them is in the folder already is not embedded again."""
        index = cls(folder, embedder, bits=bits)
        index.update(documents)
        index.compact()
        return index

    def close(self) -> None:
        """Ends it."""
        self._passages.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return self._passages.count()

    def documents(self) -> list[str]:
        """The names of its documents."""
        return sorted(self._passages.documents())

    def update(
        self, documents: Iterable[Document], *, progress: Callable[[Document], None] | None = None
    ) -> Changes:
        """Puts documents in, in place of those of their names; only texts that were not there are embedded."""
        with self._changing():
            changes = self._put(documents, progress or (lambda _: None))
            self._load()
        return changes

    add = update

    def remove(self, names: Iterable[str]) -> int:
        """Forgets documents; returns how many there were."""
        with self._changing():
            count = sum(self._passages.remove(name) for name in names)
            self._load()
        return count

    def compact(self, *, is_forced: bool = False) -> bool:
        """Makes a snapshot with what changed, if that is much; true if it did."""
        with self._changing():
            numbers, vectors = self._passages.pending(self._embedder.dimensions)
            gone = self._passages.gone()
            if not is_forced and len(numbers) + len(gone) <= _PENDING_MAX * self._passages.count():
                return False
            self._write(numbers, vectors, gone)
            self._load()
        return True

    def search(
        self, question: str, count: int = 10, *, probes: int | None = None, deviations: float = DEVIATIONS
    ) -> Answer:
        """The passages nearest to a question; `probes` clusters are looked through, all unless it is said."""
        answer = Answer()
        with answer.stage("embed query"):
            vector = self._embedder.embed([question])[0]
        if count > 0:
            self._find(answer, vector, count, probes, deviations)
        return answer

    def _find(self, answer: Answer, vector: Vectors, count: int, probes: int | None, deviations: float) -> None:
        with answer.stage("score"):
            known = self._known(vector, count)
        if self._snapshot is None:
            found = known
        else:
            with answer.stage("centroid search and scan"):
                wanted = self._snapshot.clusters if probes is None else probes
                search = self._snapshot.search(_lent(vector), count, wanted, deviations, self._gone)
            search.give(known)
            answer.estimated = search.estimated
            self._regenerate(answer, search, vector, count)
            found = search.found()
        with answer.stage("load"):
            texts = self._passages.texts([number for number, _ in found])
        answer.hits = [_hit(texts[number], similarity) for number, similarity in found if number in texts]

    def _regenerate(self, answer: Answer, search: _native.Search, vector: Vectors, count: int) -> None:
        """Exact values of those that may be among the nearest, until no other may."""
        first = max(_ASKED, count - len(search.found()))
        while asked := search.ask(_ASKED if answer.regenerated else first):
            with answer.stage("load"):
                texts = self._passages.texts(asked)
            # What another removed meanwhile is nowhere.
            there = [number for number in asked if number in texts]
            with answer.stage("regenerate"):
                vectors = self._embedder.embed([texts[number].text for number in there])
            with answer.stage("rerank"):
                search.give(list(zip(there, (vectors @ vector).tolist(), strict=True)))
            answer.regenerated += len(there)

    def _known(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """The nearest of those that no snapshot has yet: their embeddings are here."""
        similarities = self._pending @ vector
        first = np.argsort(-similarities, kind="stable")[:count]
        return [(self._numbers[place], float(similarities[place])) for place in first.tolist()]

    def _put(self, documents: Iterable[Document], progress: Callable[[Document], None]) -> Changes:
        digests = self._passages.documents()
        counts = dict.fromkeys(("added", "changed", "same", "embedded"), 0)
        for document in documents:
            digest = _digest(document)
            if digests.get(document.name) == digest:
                counts["same"] += 1
            else:
                counts["changed" if document.name in digests else "added"] += 1
                counts["embedded"] += self._put_one(document, digest)
            progress(document)
        return Changes(**counts)

    def _put_one(self, document: Document, digest: bytes) -> int:
        """Writes a document; returns how many of its passages were embedded."""
        passages = self._splitter.split(document)
        before = {text: len(numbers) for text, numbers in self._passages.texts_of(document.name).items()}
        is_new = []
        for passage in passages:
            left = before.get(passage.text, 0)
            before[passage.text] = left - 1
            is_new.append(left <= 0)
        new = [passage.text for passage, wanted in zip(passages, is_new, strict=True) if wanted]
        vectors = iter(self._embedded(new))
        embeddings = [next(vectors) if wanted else None for wanted in is_new]
        self._passages.put(document.name, digest, document.metadata, passages, embeddings)
        return len(new)

    def _embedded(self, texts: Sequence[str]) -> Iterator[Vectors]:
        for at in range(0, len(texts), _BATCH_PASSAGES):
            yield from self._embedder.embed(texts[at : at + _BATCH_PASSAGES])

    def _write(self, numbers: list[int], vectors: Vectors, gone: set[int]) -> None:
        if self._snapshot is None and not numbers:
            return
        before = self._passages.setting("snapshot")
        name = _SNAPSHOT.format(1 + (_serial(before.decode()) if before else 0))
        path, passages = self.folder / name, _lent(np.array(numbers, np.uint32))
        if self._snapshot is not None:
            _native.merge_snapshot(path, self._snapshot, gone, _lent(vectors), passages)
        else:
            self._write_first(path, passages, vectors)
        self._passages.settle(name, numbers, gone)
        self._sweep(name)

    def _write_first(self, path: Path, passages: np.ndarray[Any, Any], vectors: Vectors) -> None:
        count = max(1, min(round(math.sqrt(len(passages))), len(passages) // _CLUSTER_MIN))
        centres = clustering.centroids(vectors, count, _SEED)
        starts, rows = clustering.ordered(clustering.nearest(vectors, centres), count)
        _native.write_snapshot(
            path,
            _lent(vectors),
            _lent(centres),
            _lent(starts),
            _lent(rows),
            passages,
            dimensions=self._embedder.dimensions,
            bits=self._bits,
            seed=_SEED,
            model=self._embedder.digest,
        )

    def _sweep(self, current: str) -> None:
        """Removes what was current before, and what never was; whoever has one open keeps it."""
        for path in self.folder.glob(_SNAPSHOTS):
            if path.name != current:
                path.unlink(missing_ok=True)

    def _check_model(self) -> None:
        known = self._passages.setting("embedder")
        if known is None:
            said = {"name": self._embedder.name, "digest": self._embedder.digest.hex()}
            self._passages.make_known("embedder", json.dumps(said).encode())
            return
        was = json.loads(known)
        if was["digest"] != self._embedder.digest.hex():
            raise RagError(
                f"open the index {self.folder}: its passages were embedded by another model ({was['name']})",
                "open it with that one, or make another index",
            )

    def _load(self) -> None:
        self._numbers, self._pending = self._passages.pending(self._embedder.dimensions)
        self._gone = self._passages.gone()
        name = self._passages.setting("snapshot")
        try:
            self._snapshot = _native.Snapshot(self.folder / name.decode()) if name else None
        except (OSError, ValueError) as error:
            raise RagError(f"open the index: {error}", "remove the folder and index again") from None

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keeps other processes from changing it; they are told."""
        with (self.folder / _LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RagError(
                    f"change the index {self.folder}: another process is changing it", "wait for it to end"
                ) from None
            yield


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index."""
    return (folder / _PASSAGES).is_file()


def _serial(name: str) -> int:
    return int("".join(letter for letter in name if letter.isdigit()))


def _lent(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Flat, and not to be written to while Rust reads it."""
    flat = np.ascontiguousarray(values).reshape(-1).view()
    flat.flags.writeable = False
    return flat


def _digest(document: Document) -> bytes:
    said = json.dumps([document.text, document.metadata, document.is_markdown], sort_keys=True)
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _hit(text: Text, similarity: float) -> Hit:
    return Hit(text.text, text.document, text.start, similarity, text.metadata)
