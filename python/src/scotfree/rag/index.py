"""An index of documents in a folder: built, changed, searched.

The folder has `passages.sqlite` (texts, and what changed since the last snapshot), one `codes-N.scot` (what is
searched; see crates/scotfree-retrieval) and, where rows are kept, one `exact-N.scot`. A search takes the codes'
estimates, and reads the rows of the few passages whose bound says that they may be among the nearest; where there
is no row the passage is embedded again.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import math
import random
import re
import shlex
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from scotfree import _native
from scotfree.rag import axes, calibration, clustering
from scotfree.rag.cache import Cache
from scotfree.rag.calibration import Bound
from scotfree.rag.copies import Copies, Place
from scotfree.rag.documents import Document
from scotfree.rag.embed.batches import BATCH_PASSAGES, embed_all
from scotfree.rag.embed.embedder import Embedder, Vectors, checked, embed
from scotfree.rag.generate.model import Written
from scotfree.rag.lending import lent
from scotfree.rag.passages import SNAPSHOTS, Passages, Text, Where, passes
from scotfree.rag.placement import stored
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.placement.stored import Stored
from scotfree.rag.splitting import Cut
from scotfree.rag.stages import Staged
from scotfree.rag.trouble import RagError
from scotfree.rag.updating import Changes, Update
from scotfree.trouble import is_unicode

# Standard errors that an estimate's bound is away where it was never measured how many are needed.
DEVIATIONS: Final = 1.1
# Of embeddings that searches made: some thousand.
CACHE_BYTES: Final = 4 << 20
# Passages that are embedded at once, after as many as are looked for: more are seldom needed by then.
_ASKED: Final = 4
# Changes are searched one by one until they are so great a part of all.
_PENDING_MAX: Final = 0.1
# Below, a cluster has too few embeddings to be learnt from.
_CLUSTER_MIN: Final = 39
_SEED: Final = 1
# A dimension has so many bits on average: those that vary most have several, others none.
BITS: Final = 5 / 6
BITS_MAX: Final = 6
# Codes of so many bits a dimension are searched by their estimates alone.
_BITS_EXACT_ENOUGH: Final = 3
# Of clusters without codes those are looked through that are among so many nearest: an eighth of all, of few some.
_BARE_PART: Final = 8
_BARE_MIN: Final = 4
# By how little the first ranks of two orders count more than those behind.
_FUSION: Final = 60
_PASSAGES: Final = "passages.sqlite"
_LOCK: Final = "lock"
# In the passages' file: name and digest.
_EMBEDDER: Final = "embedder"
# What an index keeps of each passage; where nothing is said, it was made before there was a choice.
_KEEPS: Final = "keeps"
# How it cuts documents.
_CUT: Final = "cut"
# What share of the nearest searches are to find, and the bound that does.
_RECALL: Final = "recall"
_BOUND: Final = "bound"
# An index that has grown so much is measured again: a bound is wrong more often among more.
_GROWN: Final = 2
_SNAPSHOT: Final = "codes-{}.scot"
_SNAPSHOT_NAME: Final = re.compile(rb"codes-\d+\.scot")


# What is kept of each passage: a code, or a code and a row of exact values.
Keep = Literal["codes", "rows"]
# A passage's number and its similarity.
Scored = tuple[int, float]


@dataclass(frozen=True)
class _Asked:
    """What is looked for, and how carefully."""

    count: int
    probes: int | None
    deviations: float
    # Passages that are not to be found.
    outside: set[int]
    # Of which passages are to be found, too; none, if the embedding alone counts.
    words: str


@dataclass(frozen=True)
class _Seen:
    """What a search looks at. A change puts another in its place: a search sees all of it or nothing."""

    # None until one is written.
    snapshot: _native.Snapshot | None
    # Its file's.
    name: bytes | None
    # Passages that are in no snapshot yet, and a row for each.
    numbers: list[int]
    pending: Vectors
    # Passages that are not any more.
    gone: set[int]
    # Which exact values lie beside the snapshot, as the index says, and those.
    said: bytes | None
    stored: Stored
    # Whether each passage is to have a row, and how careful searches have to be, if that was measured.
    keeps_rows: bool
    bound: Bound | None

    @property
    def changes(self) -> int:
        """How many passages changed since the snapshot."""
        return len(self.numbers) + len(self.gone)

    @property
    def bare(self) -> frozenset[int]:
        """Clusters that have no codes, and those that are to have none when something is in them."""
        return self.stored.placement.bare | frozenset(self.snapshot.bare() if self.snapshot else ())


@dataclass(frozen=True)
class Hit:
    """A passage that was found."""

    # By which the index knows it; no other ever has the same.
    number: int
    text: str
    document: str
    # The letter of the document at which it begins.
    start: int
    # Inner product with the question.
    similarity: float
    metadata: dict[str, Any]
    # Where that is, as `line 12`, `page 3` or `cell 2`; nothing, where it is not known.
    location: str = ""
    # The headings that it stands under, as `Logs > Rotation`.
    section: str = ""
    # Where else the same text stands, of a search that shows it once.
    copies: list[Place] = field(default_factory=list)


@dataclass
class Answer(Staged):
    """What was found, and what it took."""

    hits: list[Hit] = field(default_factory=list)
    # Passages whose similarity was estimated; of which the embedding was at hand, lay beside the codes, and was
    # made again.
    estimated: int = 0
    cached: int = 0
    loaded: int = 0
    regenerated: int = 0
    # Those whose exact values were asked for, each time some.
    rounds: list[list[int]] = field(default_factory=list)
    # What a language model made of it, if one was asked.
    written: Written | None = None


class Index:
    """An index, open. One may change it at a time; searches see what was there when they began."""

    def __init__(  # noqa: PLR0913 - each counts for an index by itself
        self,
        folder: Path,
        embedder: Embedder,
        *,
        bits: float = BITS,
        cache_bytes: int = CACHE_BYTES,
        keep: Keep | None = None,
        recall: float | None = None,
        passage_tokens: int | None = None,
        overlap: int | None = None,
    ) -> None:
        """Opens it, or begins an empty one, whose codes have `bits` a dimension (up to 6), if not each of them.

        A new one keeps `"codes"` alone, unless something else is said: searches embed again what may be near, and
        of that keep `cache_bytes`. One that keeps `"rows"` has exact values of each passage beside the codes, so
        that searches embed nothing; then they find the share `recall` of the nearest, .99 unless it is said, which
        counts from the next `compact` on. Its passages have up to `passage_tokens` tokens (128), of which
        `overlap` (0) may be the end of the one before; while there are documents in it these stay as they are. A
        `RagError` says what is wrong with the folder.
        """
        self._recall = None if recall is None else calibration.checked(recall)
        folder = Path(folder)
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            raise RagError(f"open the index {folder}: it is no folder", "name another")
        if not 0 < bits <= BITS_MAX:
            raise RagError(f"make codes of {bits} bits a dimension", f"say some above 0, up to {BITS_MAX}")
        folder.mkdir(parents=True, exist_ok=True)
        # Of a process that changes its folder it stays the same.
        self.folder = folder.resolve()
        folder = self.folder
        self._embedder = embedder
        self._passages = Passages(folder / _PASSAGES)
        cut = self._agreed(passage_tokens, overlap)
        self._passages.above_letters = cut.above_letters(embedder)
        self._update = Update(self._passages, embedder, cut)
        self._bits = bits
        self._cache, self._cache_lock = Cache(cache_bytes), threading.Lock()
        # One thread may come again, from what is told of its progress: to look at what there is, not to change it.
        self._change_lock = threading.RLock()
        self._check_model(keep or "codes")
        self._check_kept(keep)
        self._version = self._passages.version()
        self._seen = self._read(None)

    @classmethod
    def build(  # noqa: PLR0913
        cls,
        folder: Path,
        documents: Iterable[Document],
        embedder: Embedder,
        *,
        bits: float = BITS,
        keep: Keep | None = None,
        recall: float | None = None,
        passage_tokens: int | None = None,
        overlap: int | None = None,
    ) -> Index:
        """An index of these documents; what of them is in the folder already is not embedded again."""
        index = cls(
            folder,
            embedder,
            bits=bits,
            keep=keep,
            recall=recall,
            passage_tokens=passage_tokens,
            overlap=overlap,
        )
        index.update(documents)
        index.compact()
        return index

    def close(self) -> None:
        """Ends it, when threads that change it have done; searches under way may say that it is closed."""
        with self._change_lock:
            self._passages.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return self._passages.count()

    def documents(self, where: Where | None = None) -> list[str]:
        """The names of its documents; only of those that `where` says, as in `search`."""
        return sorted(self._passages.names({} if where is None else where))

    def texts(self, names: Iterable[str]) -> list[Text]:
        """The passages of documents, in the order of the names and of where they begin; of unknown names none."""
        return [text for name in _several(names) for text in self._passages.of_document(name)]

    def metadata(self, keys_max: int, values_max: int) -> dict[str, list[Any]]:
        """What documents are said to be: keys, and of each the values, the most frequent first."""
        return self._passages.metadata(keys_max, values_max)

    def refresh(self) -> None:
        """Sees what other processes have changed since it was opened; waits for threads that change it."""
        with self._change_lock:
            version = self._passages.version()
            if version != self._version:
                self._seen = self._read(self._seen)
                self._version = version

    def update(
        self,
        documents: Iterable[Document],
        *,
        progress: Callable[[Document], None] | None = None,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> Changes:
        """Puts documents in, in place of those of their names; only texts that were not there are embedded.

        `progress` is told of each when it is on the disk. One that is the same as one of which `is_gone` says
        so by its name takes over what is there of that.
        """
        with self._changing():
            return self._update.put(documents, progress or (lambda _: None), is_gone)

    add = update

    def remove(self, names: Iterable[str]) -> int:
        """Forgets documents; returns how many there were."""
        with self._changing():
            return self._passages.remove(_several(names))

    def compact(self, *, is_forced: bool = False, changes_min: int = 1) -> bool:
        """Makes a snapshot with what changed, if that is much, and at least so many passages; true if it did.

        From the first snapshot's passages clusters and axes are learnt: who adds few at a time waits for more.
        """
        with self._changing():
            # What another process has changed, and its snapshot: to merge into an older one would lose passages.
            self._seen = self._read(self._seen)
            changes_max = max(_PENDING_MAX * len(self), changes_min - 1)
            is_due = is_forced or self._seen.changes > changes_max
            if is_due:
                self._write(self._seen, self._seen.bare)
                self._seen = self._read(self._seen)
            self._keep_bound()
        return is_due

    @property
    def bound(self) -> Bound | None:
        """How careful its searches are, and what they were measured to find; none before the first snapshot."""
        return self._seen.bound

    def measured(self, questions: int = calibration.QUESTIONS) -> tuple[float, int] | None:
        """The share of the nearest passages that searches find, and of how many questions drawn from the texts.

        None where passages have no rows: what is nearest is not known without embedding all.
        """
        seen = self._seen
        if not seen.keeps_rows or seen.snapshot is None or seen.stored.exact is None:
            return None
        asked, near = self._sample(seen.stored.exact.numbers, seen.stored.exact.similarities, questions)
        found = calibration.found(seen.snapshot, asked, near, self._deviations(seen), self._rows_of(seen))
        return found, len(near)

    @property
    def embedder(self) -> Embedder:
        """What embeds its passages."""
        return self._embedder

    @property
    def passages(self) -> Passages:
        """The texts."""
        return self._passages

    @property
    def stored(self) -> Stored:
        """The exact values that it keeps beside the codes."""
        return self._seen.stored

    @property
    def cache_bytes(self) -> tuple[int, int]:
        """Of what searches embedded: how much is kept, and at most."""
        return self._cache.bytes, self._cache.bytes_max

    @property
    def changes(self) -> int:
        """How many passages were put in or taken out since the last snapshot."""
        return self._seen.changes

    def snapshot(self) -> tuple[Path, _native.Snapshot] | None:
        """What is searched, and its file; nothing before the first `compact`."""
        seen = self._seen
        return (self.folder / seen.name.decode(), seen.snapshot) if seen.name and seen.snapshot else None

    def clusters(self) -> list[list[int]]:
        """The passages of each cluster that are not gone; those of no snapshot yet are in none."""
        seen = self._seen
        return _clusters(seen.snapshot, seen.gone) if seen.snapshot else []

    def place(self, placement: Placement) -> int:
        """Keeps of each cluster what is said: codes, exact values beside them, or none; says how many it embedded.

        It stays through all changes: what is added to a cluster is kept as the others are, nothing embedded twice.
        A cluster that had no codes and is to have some is embedded for that.
        """
        embedded = 0

        def made(numbers: Sequence[int]) -> Vectors:
            nonlocal embedded
            embedded += len(numbers)
            texts = self._passages.texts(numbers)
            return embed_all(self._embedder, [texts[number].embedded for number in numbers])

        with self._changing():
            self._seen = self._read(self._seen)
            clusters = self.clusters()
            named = placement.kept | placement.bare
            if unknown := sorted(cluster for cluster in named if not 0 <= cluster < len(clusters)):
                raise RagError(
                    f"place clusters: the index has {len(clusters)} clusters, and none of number {unknown[0]}",
                    "name others",
                )
            if self.snapshot() and placement.bare != (bare := self._seen.bare):
                again = [passage for cluster in sorted(bare - placement.bare) for passage in clusters[cluster]]
                self._write(self._seen, placement.bare, again, made(again))
                self._seen = self._read(self._seen)
            if found := self.snapshot():
                said = self._seen.stored.written(self.folder, found[0], placement, self.clusters(), made)
                self._passages.make_known(stored.SETTING, said)
                self._sweep()
        return embedded

    def cool(self) -> None:
        """Forgets what earlier searches left in memory: the next one is as the first."""
        with self._cache_lock:
            self._cache = Cache(self._cache.bytes_max)
        if exact := self._seen.stored.exact:
            exact.cool()

    def search(  # noqa: PLR0913 - most are left out
        self,
        question: str,
        count: int = 10,
        *,
        where: Where | None = None,
        with_words: bool = False,
        probes: int | None = None,
        deviations: float | None = None,
        vector: Vectors | None = None,
        is_distinct: bool = False,
    ) -> Answer:
        """The passages nearest to a question, of which `vector` is the embedding, where it is known (length one).

        Of documents whose metadata have the values of `where` (or one of several), or of which it says true if it
        is a function of name and metadata. `with_words`: also those that have the question's words, both orders
        fused by reciprocal ranks. `probes` clusters are looked through, all unless it is said; `deviations`
        standard errors are an estimate's bound, as many as find what the index is to find unless it is said.
        `is_distinct`: the same text is shown once, with the other places where it stands.
        """
        if not isinstance(question, str) or not is_unicode(question):
            raise RagError(f"search for {question!r}: it is no text", "ask with a text that UTF-8 can write")
        answer = Answer()
        outside = set() if where is None else self._passages.outside(where)
        careful = self._deviations(self._seen) if deviations is None else _careful(deviations)
        asked = _Asked(count, probes, careful, outside, question if with_words else "")
        if vector is None:
            with answer.stage("embed query"):
                vector = embed(self._embedder, [question])[0]
        else:
            vector = checked("a search with an embedding", self._embedder, [vector], 1)[0]
        if count > 0:
            copies = Copies(self._passages) if is_distinct else None
            answer.hits = self._hits(answer, vector, asked, {} if where is None else where, copies)
        return answer

    async def asearch(self, question: str, count: int = 10, **how: Any) -> Answer:
        """As `search`, on another thread."""
        return await asyncio.to_thread(self.search, question, count, **how)

    def embeddings(self, hits: Sequence[Hit]) -> Vectors:
        """One row of length one for each passage that was found; made again where none is kept."""
        seen = self._seen
        places = {number: place for place, number in enumerate(seen.numbers)}
        vectors = {hit.number: seen.pending[places[hit.number]] for hit in hits if hit.number in places}
        missing = {hit.number: hit.text for hit in hits if hit.number not in places}
        embedded = {number: text.embedded for number, text in self._passages.texts(list(missing)).items()}
        vectors |= self._vectors(Answer(), missing | embedded)
        rows = [vectors[hit.number] for hit in hits]
        return np.array(rows, np.float32).reshape(-1, self._embedder.dimensions)

    def _hits(
        self, answer: Answer, vector: Vectors, asked: _Asked, where: Where, copies: Copies | None
    ) -> list[Hit]:
        while True:
            found = self._find(answer, vector, asked)
            if asked.words:
                found = self._fused(answer, vector, asked, found)
            with answer.stage("load"):
                texts = self._passages.texts([number for number, _ in found])
            inside = {number for number, text in texts.items() if passes(where, text.document, text.metadata)}
            outside = {number for number, _ in found} - inside
            if copies and not outside:
                with answer.stage("load"):
                    outside = copies.among([texts[number] for number, _ in found], where)
            if not outside:
                return [_hit(texts[number], similarity, copies) for number, similarity in found]
            # Removed, put in or changed since the search began, or shown already: others take their places.
            asked = replace(asked, outside=asked.outside | outside)

    def _find(self, answer: Answer, vector: Vectors, asked: _Asked) -> list[Scored]:
        seen = self._seen
        with answer.stage("score"):
            known = _known(seen, vector, asked)
        if seen.snapshot is None:
            return known
        with answer.stage("centroid search and scan"):
            clusters = seen.snapshot.clusters
            probes = clusters if asked.probes is None else min(max(asked.probes, 0), clusters)
            gone = seen.gone | asked.outside
            near = bare_probes(clusters)
            search = seen.snapshot.search(
                lent(vector), asked.count, probes, asked.deviations, gone, bare_probes=near
            )
        search.give(known)
        answer.estimated = search.estimated
        for at in range(0, search.certain, BATCH_PASSAGES):
            self._ask(answer, search, vector, min(BATCH_PASSAGES, search.certain - at))
        if seen.snapshot.bits >= _BITS_EXACT_ENOUGH * seen.snapshot.dimensions:
            return search.guessed()
        self._regenerate(answer, search, vector, asked.count)
        return search.found()

    def _regenerate(self, answer: Answer, search: _native.Search, vector: Vectors, count: int) -> None:
        """Exact values of those that may be among the nearest, until no other may."""
        asked = calibration.BATCH if self._seen.keeps_rows else _ASKED
        most = max(asked, count - len(search.found()))
        while self._ask(answer, search, vector, most):
            most = asked

    def _ask(self, answer: Answer, search: _native.Search, vector: Vectors, most: int) -> bool:
        """Whether some may be among the nearest, of which as many are given their exact values."""
        wanted = search.ask(most)
        if wanted:
            answer.rounds.append(wanted)
            search.give(self._exact(answer, wanted, vector))
        return bool(wanted)

    def _exact(self, answer: Answer, numbers: Sequence[int], vector: Vectors) -> list[Scored]:
        """The similarities of passages, kept or embedded again; of those that another removed meanwhile some."""
        with answer.stage("load"):
            known, kept = self._seen.stored.products(numbers, vector)
            answer.loaded += len(known)
            has_row = set(known)
            others = [number for number in numbers if number not in has_row]
            texts = {number: found.embedded for number, found in self._passages.texts(others).items()}
        vectors = self._vectors(answer, texts) if texts else {}
        with answer.stage("rerank"):
            made = [(number, float(found @ vector)) for number, found in vectors.items()]
            return [*zip(known, kept, strict=True), *made]

    def _vectors(self, answer: Answer, texts: Mapping[int, str]) -> dict[int, Vectors]:
        """The embeddings of passages with these texts."""
        with answer.stage("load"):
            kept = self._seen.stored.vectors(list(texts))
        with answer.stage("cache"), self._cache_lock:
            cached = {number: self._cache.get(number) for number in texts if number not in kept}
        vectors = kept | {number: found for number, found in cached.items() if found is not None}
        missing = [number for number, found in cached.items() if found is None]
        with answer.stage("regenerate"):
            made = embed(self._embedder, [texts[number] for number in missing])
        with answer.stage("cache"), self._cache_lock:
            for number, embedding in zip(missing, made, strict=True):
                self._cache.put(number, embedding.copy(), len(texts[number]))
        answer.loaded += len(kept)
        answer.cached += len(cached) - len(missing)
        answer.regenerated += len(missing)
        return vectors | dict(zip(missing, made, strict=True))

    def _fused(self, answer: Answer, vector: Vectors, asked: _Asked, near: list[Scored]) -> list[Scored]:
        """The orders by embedding and by words as one (Cormack, Clarke and Büttcher, SIGIR 2009)."""
        with answer.stage("words"):
            with_words = self._passages.with_words(asked.words, asked.count + len(asked.outside))
            worded = [number for number in with_words if number not in asked.outside][: asked.count]
        similarities = dict(near)
        similarities |= self._exact(answer, [number for number in worded if number not in similarities], vector)
        ranks: dict[int, float] = dict.fromkeys(similarities, 0.0)
        for order in ([number for number, _ in near], worded):
            for rank, number in enumerate(order, 1):
                if number in ranks:
                    ranks[number] += 1 / (_FUSION + rank)
        first = sorted(ranks, key=lambda number: (-ranks[number], number))[: asked.count]
        return [(number, similarities[number]) for number in first]

    def _write(
        self, seen: _Seen, bare: frozenset[int], again: Sequence[int] = (), vectors: Vectors | None = None
    ) -> None:
        """A snapshot with what changed, of which these clusters have no codes.

        `again` are the passages of those that had none and are to, and `vectors` their embeddings.
        """
        if seen.snapshot is None and not seen.numbers:
            return
        name = _SNAPSHOT.format(1 + (_serial(seen.name.decode()) if seen.name else 0))
        path, passages = self.folder / name, lent(np.array([*seen.numbers, *again], np.uint32))
        more: dict[str, bytes] = {}
        if seen.snapshot is not None:
            added = seen.pending if vectors is None else np.concatenate([seen.pending, vectors])
            _native.merge_snapshot(path, seen.snapshot, seen.gone, lent(added), passages, bare=bare)
        else:
            count = self._write_first(path, passages, seen.pending)
            if seen.keeps_rows:
                seen = replace(seen, stored=Stored(Placement.of(disk=range(count))))
                more[_BOUND] = self._first_bound(path, seen).written()
        self._passages.settle(name, seen.numbers, seen.gone, _carried(self.folder, path, seen, bare) | more)
        self._sweep()

    def _write_first(self, path: Path, passages: np.ndarray[Any, Any], vectors: Vectors) -> int:
        """Writes the first snapshot; returns how many clusters it has."""
        count = max(1, min(round(math.sqrt(len(passages))), len(passages) // _CLUSTER_MIN))
        centres = clustering.centroids(vectors, count, _SEED)
        places = clustering.nearest(vectors, centres)
        starts, rows = clustering.ordered(places, count)
        bits = axes.bits_of(self._embedder.dimensions, self._bits)
        _native.write_snapshot(
            path,
            axes.learnt(vectors, centres, places, bits, _SEED),
            lent(vectors),
            lent(centres),
            lent(starts),
            lent(rows),
            passages,
            model=self._embedder.digest,
        )
        return count

    # ---- how careful a search is

    def _bound(self) -> Bound | None:
        said = self._passages.setting(_BOUND)
        return Bound.read(said) if said else None

    @staticmethod
    def _deviations(seen: _Seen) -> float:
        return seen.bound.deviations if seen.bound else DEVIATIONS

    def _target(self) -> float:
        return self._recall or float(self._passages.setting(_RECALL) or calibration.RECALL)

    def _first_bound(self, path: Path, seen: _Seen) -> Bound:
        """Of a first snapshot, all of whose embeddings are at hand."""
        places = {number: place for place, number in enumerate(seen.numbers)}

        def exact(numbers: Sequence[int]) -> Vectors:
            return seen.pending[[places[number] for number in numbers]]

        questions, near = self._sample(seen.numbers, lambda question: seen.pending @ question)
        return calibration.calibrated(_native.Snapshot(path), questions, near, self._target(), exact)

    def _keep_bound(self) -> None:
        """Measures the bound again where another share is to be found, or among many more passages."""
        seen, target = self._seen, self._target()
        if not seen.keeps_rows or seen.snapshot is None or seen.stored.exact is None:
            return
        measured = seen.bound.passages if seen.bound and seen.bound.target == target else 0
        if len(seen.stored.exact.numbers) < _GROWN * measured:
            return
        questions, near = self._sample(seen.stored.exact.numbers, seen.stored.exact.similarities)
        bound = calibration.calibrated(seen.snapshot, questions, near, target, self._rows_of(seen))
        self._passages.make_known(_RECALL, str(target).encode())
        self._passages.make_known(_BOUND, bound.written())
        self._seen = self._read(seen)

    def _sample(
        self,
        numbers: Sequence[int] | calibration.Numbers,
        similarities: Callable[[Vectors], Vectors],
        count: int = calibration.QUESTIONS,
    ) -> tuple[Vectors, list[dict[int, float]]]:
        """Questions out of so many passages' texts, and what is nearest to each of them."""
        chance = random.Random(_SEED)
        drawn = sorted(chance.sample(list(map(int, numbers)), min(count, len(numbers))))
        texts = self._passages.texts(drawn)
        asked = [calibration.sentence(texts[number].text, chance) for number in drawn if number in texts]
        questions = embed_all(self._embedder, asked)
        return questions, [calibration.nearest(numbers, similarities(question)) for question in questions]

    @staticmethod
    def _rows_of(seen: _Seen) -> calibration.Exact:
        def exact(numbers: Sequence[int]) -> Vectors:
            kept = seen.stored.vectors(numbers)
            return np.array([kept[number] for number in numbers], np.float32)

        return exact

    def _sweep(self) -> None:
        """Removes what was current before, and what never was; whoever has one open keeps it."""
        name, said = self._settings()
        current = {name.decode() if name else None, stored.file_of(said)}
        for pattern in (SNAPSHOTS, stored.FILES):
            for path in self.folder.glob(pattern):
                if path.name not in current:
                    path.unlink(missing_ok=True)

    def _agreed(self, tokens: int | None, overlap: int | None) -> Cut:
        """How documents are cut: as they were, as long as there are any."""
        said = self._passages.setting(_CUT)
        is_new = self._passages.setting(_EMBEDDER) is None
        cut = Cut(is_titled=True) if is_new else Cut.read(said)
        wanted = replace(
            cut,
            tokens=cut.tokens if tokens is None else tokens,
            overlap=cut.overlap if overlap is None else overlap,
        ).checked(self._embedder)
        if wanted != cut and not is_new and not self._passages.is_empty():
            raise RagError(
                f"make passages of {wanted.tokens} tokens, {wanted.overlap} of them overlapping, in the index "
                f"{self.folder}: it has documents in passages of {cut.tokens}, {cut.overlap} overlapping",
                "leave that out, or make another index; `scot rag index FOLDER --forget` empties this one",
            )
        if wanted != cut or is_new:
            self._passages.make_known(_CUT, wanted.written())
        return wanted

    def _check_kept(self, said: Keep | None) -> None:
        """Refuses what an index that is there does not keep."""
        kept = "rows" if self._keeps_rows() else "codes"
        if said not in (None, kept):
            raise RagError(
                f"open the index {self.folder} as one that keeps {said}: it keeps {kept}",
                "leave that out, or make another index; `scot rag plan --apply` changes what is kept of clusters",
            )
        if self._recall is not None and kept == "codes":
            raise RagError(
                f"hold a recall of {self._recall} in the index {self.folder}: it keeps codes alone",
                "make one that keeps rows; how careful a search of this one is its `deviations` say",
            )

    def _keeps_rows(self) -> bool:
        return self._passages.setting(_KEEPS) == b"rows"

    def _check_model(self, keeps: Keep) -> None:
        known = self._passages.setting(_EMBEDDER)
        if known is None:
            said = {"name": self._embedder.name, "digest": self._embedder.digest.hex()}
            self._passages.make_known(_KEEPS, keeps.encode())
            self._passages.make_known(_RECALL, str(self._recall or calibration.RECALL).encode())
            self._passages.make_known(_EMBEDDER, json.dumps(said).encode())
            return
        was = json.loads(known)
        if was["digest"] != self._embedder.digest.hex():
            raise _made_otherwise(self.folder, was["name"], self._embedder.name)

    def _read(self, before: _Seen | None) -> _Seen:
        """What there is now; a snapshot that was open before is not opened again."""
        numbers, pending = self._passages.pending(self._embedder.dimensions)
        gone = self._passages.gone()
        name, said = self._settings()
        if before and (before.name, before.said) == (name, said):
            # Neither file is ever changed; to open a snapshot is to read it once.
            return replace(before, numbers=numbers, pending=pending, gone=gone, bound=self._bound())
        if name and not _SNAPSHOT_NAME.fullmatch(name):
            raise RagError(
                f"open the index {self.folder}: what it says of its codes is damaged",
                "remove the folder and index again",
            )
        path = self.folder / name.decode() if name else None
        try:
            is_same = before is not None and before.name == name
            snapshot = before.snapshot if before and is_same else _native.Snapshot(path) if path else None
            kept = Stored.opened(self.folder, said, path, self._embedder.dimensions)
        except (OSError, ValueError, RagError) as error:
            if self._settings() != (name, said):
                # Another process has made one and removed this meanwhile.
                return self._read(before)
            if isinstance(error, RagError):
                raise
            raise RagError(f"open the index: {error}", "remove the folder and index again") from None
        if kept.is_lost and self._settings() != (name, said):
            return self._read(before)
        return _Seen(snapshot, name, numbers, pending, gone, said, kept, self._keeps_rows(), self._bound())

    def _settings(self) -> tuple[bytes | None, bytes | None]:
        """Which snapshot counts, and which exact values."""
        return self._passages.setting("snapshot"), self._passages.setting(stored.SETTING)

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Keeps other processes from changing it; they are told. Other threads wait. Searches see the change."""
        with self._change_lock, self._locked():
            try:
                yield
            except (OSError, sqlite3.Error):
                # What could not be written whole takes room on a disk that may be full.
                with suppress(OSError, sqlite3.Error):
                    self._sweep()
                raise
            finally:
                # Also of what could not be done to its end some may have been done.
                self._seen = self._read(self._seen)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._passages.check_place()
        with (self.folder / _LOCK).open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RagError(
                    f"change the index {self.folder}: another process is changing it, or what calls this",
                    "wait for it to end",
                ) from None
            try:
                yield
            finally:
                # Not left to the file's end: a process that was forked meanwhile has it open, too.
                fcntl.flock(lock, fcntl.LOCK_UN)


def is_index(folder: Path) -> bool:
    """Whether a folder holds an index."""
    return (folder / _PASSAGES).is_file()


def _known(seen: _Seen, vector: Vectors, asked: _Asked) -> list[Scored]:
    """The nearest of those that no snapshot has yet: their embeddings are here."""
    similarities = seen.pending @ vector
    order = (int(place) for place in np.argsort(-similarities, kind="stable"))
    inside = (place for place in order if seen.numbers[place] not in asked.outside)
    return [(seen.numbers[place], float(similarities[place])) for place in islice(inside, asked.count)]


def embedder_of(folder: Path) -> str | None:
    """The name of the embedder that made an index, by which `embed.by_name` makes it again; none, if none did."""
    passages = Passages(folder / _PASSAGES)
    try:
        known = passages.setting(_EMBEDDER)
    finally:
        passages.close()
    return str(json.loads(known)["name"]) if known else None


def _made_otherwise(folder: Path, name: str, now: str) -> RagError:
    if name == now:
        return RagError(
            f"open the index {folder}: its passages were embedded by another model that was called {name}",
            "put that one back in its place, or make another index",
        )
    return RagError(
        f"open the index {folder}: its passages were embedded by another model ({name})",
        f"open it with that one (--embedder {shlex.quote(name)}), or make another index",
    )


def _clusters(snapshot: _native.Snapshot, gone: set[int]) -> list[list[int]]:
    passages, starts = snapshot.passages(), snapshot.starts()
    return [[passage for passage in passages[start:end] if passage not in gone] for start, end in pairwise(starts)]


def bare_probes(clusters: int) -> int:
    """How many of so many clusters are looked through if they have no codes: the nearest."""
    return max(_BARE_MIN, -(-clusters // _BARE_PART))


def _carried(folder: Path, snapshot: Path, seen: _Seen, bare: frozenset[int]) -> dict[str, bytes]:
    """Writes what was kept of clusters as a new snapshot has them; returns what is to be known of it."""
    before = seen.stored.placement
    placement = Placement.of(before.memory - bare, before.disk - bare, bare)
    if placement == before and not placement.kept:
        return {}
    places = {number: place for place, number in enumerate(seen.numbers)}

    def made(numbers: Sequence[int]) -> Vectors:
        return seen.pending[[places[number] for number in numbers]]

    clusters = _clusters(_native.Snapshot(snapshot), set()) if placement.kept else []
    for cluster in placement.kept:
        # Of a row that is lost there is nothing to copy: searches embed it.
        known = seen.stored.has(clusters[cluster]) | places.keys()
        clusters[cluster] = [number for number in clusters[cluster] if number in known]
    return {stored.SETTING: seen.stored.written(folder, snapshot, placement, clusters, made)}


def _serial(name: str) -> int:
    return int("".join(letter for letter in name if letter.isdigit()))


def _careful(deviations: float) -> float:
    if not math.isfinite(deviations) or deviations < 0:
        raise RagError(f"search with a bound of {deviations} standard errors", "say a number from 0 on")
    return deviations


def _several(names: Iterable[str]) -> list[str]:
    """Names of documents; one alone would be read letter by letter."""
    if isinstance(names, str):
        raise RagError(f"take {names!r} for names of documents", f"say a list of them: [{names!r}]")
    return list(names)


def _hit(text: Text, similarity: float, copies: Copies | None) -> Hit:
    return Hit(
        text.number,
        text.text,
        text.document,
        text.start,
        similarity,
        text.metadata,
        text.location,
        text.section,
        copies.of(text) if copies else [],
    )
