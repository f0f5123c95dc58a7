"""An index of documents in a folder: built, changed, searched.

The folder has `passages.sqlite` (texts, and what changed since the last snapshot), one `codes-N.scot` (what is
searched; see crates/scotfree-retrieval) and, where rows are kept, one `exact-N.scot`. A search takes the codes'
estimates, and reads the rows of the few passages whose bound says that they may be among the nearest; where there
is no row the passage is embedded again.
"""

from __future__ import annotations

import asyncio
import fcntl
import math
import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag import axes, calibration, settings
from scotfree.rag.calibration import Bound
from scotfree.rag.copies import Copies
from scotfree.rag.damage import REMADE, damaged, reading
from scotfree.rag.documents import Document
from scotfree.rag.embed.batches import embed_all
from scotfree.rag.embed.embedder import Embedder, Vectors, checked, embed_questions
from scotfree.rag.embed.made import Made
from scotfree.rag.filters import EVERYTHING
from scotfree.rag.passages import SNAPSHOTS, Passages, Text, Wanted, Where, passes, read
from scotfree.rag.pending import Pending, Scored, Settled
from scotfree.rag.placement import stored
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.placement.rows import of_length_one
from scotfree.rag.placement.stored import Stored
from scotfree.rag.sampling import Measured, Sampler
from scotfree.rag.searching import (
    Answer,
    Asked,
    Finder,
    Hit,
    careful,
    guesses,
    hit,
)
from scotfree.rag.seen import Seen
from scotfree.rag.settings import Choices, Keep, Settings
from scotfree.rag.snapshots import Known, Source, gathered, write_first, write_merged
from scotfree.rag.trouble import Busy, Damaged, RagError
from scotfree.rag.updating import Changes, Update
from scotfree.trouble import is_unicode

# Of embeddings that searches made: some thousand.
CACHE_BYTES: Final = 4 << 20
# Changes are searched one by one until they are so great a part of all.
_PENDING_MAX: Final = 0.1
_PASSAGES: Final = "passages.sqlite"
_LOCK: Final = "lock"
# There are no more passages.
_PASSAGES_MAX: Final = (1 << 32) - 1
# An index that has grown so much is measured again: a bound is wrong more often among more.
_GROWN: Final = 2
# And one that has grown so much learns its clusters and axes anew, if all embeddings are at hand.
_OUTGROWN: Final = 4
_SNAPSHOT: Final = "codes-{}.scot"
_SNAPSHOT_NAME: Final = re.compile(rb"codes-\d+\.scot")


class Index:
    """An index, open. One may change it at a time; searches see what was there when they began."""

    def __init__(  # noqa: PLR0913 - each counts for an index by itself
        self,
        folder: Path,
        embedder: Embedder,
        *,
        bits: float | None = None,
        cache_bytes: int = CACHE_BYTES,
        keep: Keep | None = None,
        recall: float | None = None,
        passage_tokens: int | None = None,
        overlap: int | None = None,
        mends: bool = False,
    ) -> None:
        """Opens it, or begins an empty one.

        A new one keeps `"rows"`: of each passage a code and exact values, so that searches embed nothing but the
        question. One that keeps `"codes"` alone is an eighth as large; its searches embed again what may be near,
        and of that keep `cache_bytes`. Either finds the share `recall` of the nearest, .99 unless it is said; said
        of an index that is there, it counts from the next `compact` on. Codes have as many bits as passages
        need, or `bits` a dimension (up to 6); of 3 and more searches go by codes alone. Passages have up to
        `passage_tokens` tokens (128), of which `overlap` (0) may be the end of the one before; while there are
        documents these stay as they are. A `RagError` says what is wrong with the folder; who `mends` opens it
        although its codes are damaged or lost, so that `mend` can make them anew.
        """
        choices = Choices(bits, keep, recall, passage_tokens, overlap).checked()
        folder = Path(folder)
        if not folder.is_dir() and (folder.exists() or folder.is_symlink()):
            raise RagError(f"open the index {folder}: it is no folder", "name another")
        folder.mkdir(parents=True, exist_ok=True)
        # Of a process that changes its folder it stays the same.
        self.folder = folder.resolve()
        folder = self.folder
        self._embedder = embedder
        self._passages = Passages(folder / _PASSAGES)
        self._settings = Settings(folder, self._passages, choices)
        cut = self._settings.agree(embedder)
        self._passages.above_letters = cut.above_letters(embedder)
        self._update = Update(self._passages, embedder, cut, lambda: self._seen.stored)
        self._finder = Finder(self._passages, embedder, cache_bytes)
        self._sampler = Sampler(self._passages, embedder)
        self._mends = mends
        # How many passages were embedded again, since what was kept of them is damaged or lost.
        self._embedded_again = 0
        # One thread may come again, from what is told of its progress: to look at what there is, not to change it.
        self._change_lock = threading.RLock()
        self._version = self._passages.version()
        self._seen = self._read(None)

    @classmethod
    def build(  # noqa: PLR0913
        cls,
        folder: Path,
        documents: Iterable[Document],
        embedder: Embedder,
        *,
        bits: float | None = None,
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
        return sorted(self._passages.names(read({} if where is None else where)))

    def texts(self, names: Iterable[str]) -> list[Text]:
        """The passages of documents, in the order of the names and of where they begin; of unknown names none."""
        return [text for name in _several(names) for text in self._passages.of_document(name)]

    def metadata(self, keys_max: int, values_max: int) -> dict[str, list[Any]]:
        """What documents are said to be: keys, and of each the values, the most frequent first."""
        return self._passages.metadata(keys_max, values_max)

    @property
    def is_in_place(self) -> bool:
        """Whether its folder has it still: not, if it was moved, removed or another put in its place."""
        return self._passages.is_in_place

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
        part: Callable[[Document, float], None] = lambda *_: None,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> Changes:
        """Puts documents in, in place of those of their names; only texts that were not there are embedded.

        `progress` is told of each when it is on the disk, `part` what share of a long one is cut and embedded.
        One that is the same as one of which `is_gone` says so by its name takes over what is there of that.
        """
        with self._changing():
            return self._update.put(documents, progress or (lambda _: None), is_gone, part)

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
                self._write(self._seen, self._seen.bare, may_learn=True)
                self._seen = self._read(self._seen)
            self._keep_bound()
        return is_due

    @property
    def bound(self) -> Bound | None:
        """How careful its searches are, and what they were measured to find; none before the first snapshot."""
        return self._seen.bound

    def measured(self, questions: Sequence[str] | None = None) -> Measured | None:
        """What searches find of the nearest passages, for these questions or for some drawn from the texts.

        What is nearest is known from the rows; where there are none, a search that is most careful finds it, which
        embeds some hundred passages a question. None before the first snapshot.
        """
        seen = self._seen
        if seen.snapshot is None:
            return None
        complete = self._sampler.completing(seen)
        asked = None if questions is None else embed_questions(self._embedder, questions)
        sample = self._sampler.sample(seen, seen.snapshot, complete, asked)
        found = calibration.found(seen.snapshot, sample, careful(seen), complete)
        return Measured(
            self._settings.recall, found, len(sample.near), self._sampler.others(seen, sample, complete)
        )

    @property
    def embeds_nothing(self) -> bool:
        """Whether all that a search may ask for lies beside the codes."""
        return self._seen.keeps_rows and self._seen.stored.exact is not None

    def damages(self) -> list[str]:
        """What of its files is not as it was written, with what to do; none: it is whole.

        The codes were read when it was opened. Waits for threads that change it; while another process does, the
        index of words is not compared with the texts, for which nobody may write.
        """
        exact = self._seen.stored.exact
        with self._change_lock, ExitStack() as held:
            is_alone = True
            try:
                held.enter_context(self._locked())
            except RagError:
                is_alone = False
            texts = self._passages.damages(with_words=is_alone)
            lost = [] if texts else self._lost()
        return [*texts, *lost, *(exact.damages() if exact else [])]

    def _lacks_rows(self, seen: Seen) -> bool:
        """Whether a passage has no row although its cluster is kept."""
        clusters, kept = self.clusters(), seen.stored.placement.kept
        return any(len(seen.stored.has(clusters[cluster])) < len(clusters[cluster]) for cluster in kept)

    def _lost(self) -> list[str]:
        """That passages are in nothing that is searched, if some are."""
        # First, since others may put some in.
        numbers = self._passages.numbers()
        seen = self._read(self._seen)
        there = seen.snapshot.passages() if seen.snapshot else ()
        found = np.concatenate([np.array(there, np.uint32), seen.pending.numbers])
        lost = len(np.setdiff1d(numbers, found))
        return [f"{lost:,} passages are not found by any search; {REMADE}"] if lost else []

    def mend(self) -> int:
        """Makes anew what is damaged or lost of codes and rows; says how many passages it embedded for that.

        From the rows that are whole, and from the texts. Of an index that has lost its codes clusters are learnt
        anew, and what somebody planned for the old ones is gone. A `RagError`: another process is changing it.
        """
        before = self._embedded_again
        with self._changing():
            self._seen = seen = self._read(None)
            if (seen.name and seen.snapshot is None) or self._lost():
                self._write(seen, frozenset(), is_anew=True)
            elif self._lacks_rows(seen) or (seen.stored.exact and seen.stored.exact.damages()):
                self._write(seen, seen.bare, is_mended=True)
            self._seen = self._read(self._seen)
            self._keep_bound()
        return self._embedded_again - before

    def hold(self, recall: float, questions: Sequence[str] | None = None) -> Bound | None:
        """Has searches find so much of the nearest from now on, for these questions or for drawn ones.

        None where there is nothing to measure: before the first snapshot, or where codes alone are searched.
        """
        self._settings.ask_recall(recall)
        asked = None if questions is None else embed_questions(self._embedder, questions)
        with self._changing():
            self._make_known(self._settings.written())
            self._keep_bound(asked, is_forced=True)
        return self.bound

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
        return self._finder.cache_bytes

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
            return self._embedded(numbers)

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
        self._finder.cool()
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

        Of documents whose metadata are as `where` says, as `{"kind": "note", "year": {"$gte": 2020}}` (see
        `filters`), or of which it says true if it is a function of name and metadata. `with_words`: also those
        that have the question's words, both orders fused by reciprocal ranks. `probes` clusters are looked
        through, all unless it is said; `deviations` standard errors are an estimate's bound, as many as find what
        the index is to find unless it is said. `is_distinct`: the same passage, under the same title and headings
        if these are embedded, is shown once, with the other places where it stands.
        """
        if not isinstance(question, str) or not is_unicode(question):
            raise RagError(f"search for {question!r}: it is no text", "ask with a text that UTF-8 can write")
        _check_whole("count", count)
        _check_whole("probes", 0 if probes is None else probes)
        count, answer = min(count, _PASSAGES_MAX), Answer()
        wanted = EVERYTHING if where is None else read(where)
        outside = _native.PassageSet()
        if wanted != EVERYTHING:
            with answer.stage("filter"):
                outside = self._passages.outside(wanted)
        deviations = None if deviations is None else _checked(deviations)
        asked = Asked(count, probes, deviations, outside, question if with_words else "")
        if vector is None:
            with answer.stage("embed query"):
                vector = embed_questions(self._embedder, [question])[0]
        else:
            vector = checked("a search with an embedding", self._embedder, [vector], 1)[0]
        if count > 0:
            copies = Copies(self._passages) if is_distinct else None
            answer.hits = self._hits(answer, vector, asked, wanted, copies)
        return answer

    async def asearch(self, question: str, count: int = 10, **how: Any) -> Answer:
        """As `search`, on another thread."""
        return await asyncio.to_thread(self.search, question, count, **how)

    def embeddings(self, hits: Sequence[Hit]) -> Vectors:
        """One row of length one for each passage that was found; made again where none is kept."""
        seen = self._seen
        while True:
            is_new = seen.pending.has(np.array([hit.number for hit in hits], np.uint32))
            new = [hit.number for hit, new in zip(hits, is_new, strict=True) if new]
            try:
                vectors = dict(zip(new, seen.pending.vectors(new), strict=True))
                break
            except Settled:
                seen = self._seen_again(seen)
        texts = {hit.number: hit.text for hit, new in zip(hits, is_new, strict=True) if not new}
        # Of one that is gone since it was found what stood above it is gone, too.
        texts |= {number: text.embedded for number, text in self._passages.texts(list(texts)).items()}
        vectors |= self._finder.vectors(seen, Answer(), texts)
        rows = np.array([vectors[hit.number] for hit in hits], np.float32).reshape(-1, self._embedder.dimensions)
        return of_length_one(rows)

    def _hits(
        self, answer: Answer, vector: Vectors, asked: Asked, wanted: Wanted, copies: Copies | None
    ) -> list[Hit]:
        while True:
            found = self._find(answer, vector, asked)
            with answer.stage("load"):
                texts = self._passages.texts([number for number, _ in found])
            outside = {number for number, _ in found if number not in texts}
            if wanted != EVERYTHING:
                outside |= {
                    text.number for text in texts.values() if not passes(wanted, text.document, text.metadata)
                }
            if copies and not outside:
                with answer.stage("load"):
                    outside = copies.among([texts[number] for number, _ in found], wanted)
            if not outside:
                return [hit(texts[number], similarity, copies) for number, similarity in found]
            # Removed, put in or changed since the search began, or shown already: others take their places.
            asked = replace(asked, outside=asked.outside | _native.PassageSet(list(outside)))

    def _find(self, answer: Answer, vector: Vectors, asked: Asked) -> list[Scored]:
        seen = self._seen
        while True:
            try:
                found = self._finder.find(seen, answer, vector, asked)
                return self._finder.fused(seen, answer, vector, asked, found) if asked.words else found
            except Settled:
                seen = self._seen_again(seen)

    def _seen_again(self, before: Seen) -> Seen:
        """What there is after another thread or process has settled what was pending; no change is waited for."""
        now = self._read(before)
        if np.array_equal(now.pending.numbers, before.pending.numbers):
            raise RagError(
                f"search the index {self.folder}: the embeddings of some passages are damaged",
                "remove the folder and index again",
            )
        return now

    def _write(
        self,
        seen: Seen,
        bare: frozenset[int],
        again: Sequence[int] = (),
        vectors: Vectors | None = None,
        *,
        may_learn: bool = False,
        is_anew: bool = False,
        is_mended: bool = False,
    ) -> None:
        """A snapshot with what changed, of which these clusters have no codes; of others if it `may_learn` them.

        `again` are the passages of those that had none and are to, and `vectors` their embeddings. `is_anew`: of
        all passages, whatever snapshot there was; `is_mended`: rows that are lost are made again.
        """
        if not is_anew and seen.snapshot is None and not len(seen.pending):
            return
        name = _SNAPSHOT.format(1 + (_serial(seen.name.decode()) if seen.name else 0))
        path = self.folder / name
        if is_anew:
            all_there = Known(self._passages.numbers(), seen.pending, seen.stored, self._embedded)
            known = self._write_anew(path, seen, all_there)
        elif seen.snapshot is None:
            known = self._write_anew(path, seen, seen.pending)
        elif may_learn and (all_ := self._outgrown(seen)) is not None:
            known = self._write_anew(path, seen, all_)
        else:
            parts = gathered(seen.pending.parts(), self._embedder.dimensions)
            if vectors is not None:
                parts = chain([(np.array(again, np.uint32), vectors)], parts)
            write_merged(path, seen.snapshot, seen.gone, parts, bare)
            known = _carried(self.folder, path, seen, bare, self._embedded, is_mended=is_mended)
        self._passages.settle(name, seen.pending.numbers.tolist(), seen.gone, known)
        self._sweep()

    def _embedded(self, numbers: Sequence[int]) -> Vectors:
        """The embeddings of passages, made again."""
        texts = self._passages.texts(numbers)
        self._embedded_again += len(texts)
        if len(texts) < len(set(numbers)):
            raise RagError(
                f"embed passages of the index {self.folder} again: the texts of some are gone",
                "remove the folder and index again",
            )
        return embed_all(self._embedder, [texts[number].embedded for number in numbers])

    def _write_anew(self, path: Path, seen: Seen, source: Source) -> dict[str, bytes]:
        """Writes a snapshot of all these passages, and rows if it keeps them; returns what is to be known."""
        count, dimensions = len(source.numbers), self._embedder.dimensions
        bits = axes.bits_of(dimensions, self._settings.bits(count))
        clusters = write_first(path, source, bits, self._embedder)
        known = dict(self._settings.written(learnt=count))
        snapshot = _native.Snapshot(path)
        new = replace(seen, snapshot=snapshot)
        complete = calibration.by_asking(source.vectors)
        if seen.keeps_rows:
            placement, own = Placement.of(disk=range(clusters)), _clusters(snapshot, set())
            said = seen.stored.written(self.folder, path, placement, own, source.vectors)
            known[stored.SETTING] = said
            new = replace(new, stored=Stored.opened(self.folder, said, path, dimensions))
            complete = self._sampler.completing(new)
        elif seen.said is not None:
            # What was planned for clusters that are no more.
            known[stored.SETTING] = seen.stored.written(self.folder, path, Placement(), (), source.vectors)
        if not guesses(new):
            questions = self._sampler.drawn(source.numbers, calibration.QUESTIONS)
            sample = calibration.Sample(questions, calibration.nearest(questions, source.parts()))
            known |= self._settings.written(
                bound=calibration.calibrated(snapshot, sample, self._settings.recall, complete)
            )
        return known

    def _outgrown(self, seen: Seen) -> Source | None:
        """All passages, if they are many more than clusters and axes were learnt from, and each is at hand."""
        learnt, snapshot, exact = self._settings.learnt, seen.snapshot, seen.stored.exact
        if learnt is None or snapshot is None or exact is None or not seen.keeps_rows:
            return None
        if (placed := seen.stored.placement).memory or placed.bare:
            # Somebody has planned for the clusters that there are.
            return None
        there = np.array(snapshot.passages(), np.uint32)
        gone = np.fromiter(seen.gone, np.uint32, len(seen.gone))
        numbers = np.union1d(np.setdiff1d(there, gone), seen.pending.numbers)
        is_grown = len(numbers) >= _OUTGROWN * learnt
        if is_grown and (exact.has(numbers) | seen.pending.has(numbers)).all():
            return Known(numbers, seen.pending, seen.stored, self._embedded)
        return None

    # ---- how careful a search is

    def _keep_bound(self, questions: Vectors | None = None, *, is_forced: bool = False) -> None:
        """Measures the bound again where another share is to be found, or among many more passages."""
        seen, target = self._seen, self._settings.recall
        if seen.snapshot is None or guesses(seen):
            return
        if seen.bound is None and seen.stored.exact is None and not self._settings.is_recall_asked:
            # It was made before bounds were measured, and nobody asked for what embeds some thousand passages.
            return
        measured = seen.bound.passages if seen.bound and seen.bound.target == target else 0
        if seen.snapshot.rows < _GROWN * measured and not is_forced:
            return
        complete = self._sampler.completing(seen)
        sample = self._sampler.sample(seen, seen.snapshot, complete, questions)
        bound = calibration.calibrated(seen.snapshot, sample, target, complete)
        self._make_known(self._settings.written(bound=bound))
        self._seen = self._read(seen)

    def _make_known(self, said: Mapping[str, bytes]) -> None:
        for name, value in said.items():
            self._passages.make_known(name, value)

    def _sweep(self) -> None:
        """Removes what was current before, and what never was; whoever has one open keeps it."""
        name, said = self._files()
        current = {name.decode() if name else None, stored.file_of(said)}
        for pattern in (SNAPSHOTS, stored.FILES):
            for path in self.folder.glob(pattern):
                if path.name not in current:
                    path.unlink(missing_ok=True)

    def _read(self, before: Seen | None) -> Seen:
        """What there is now; a snapshot that was open before is not opened again."""
        pending = Pending(self._passages, self._embedder.dimensions)
        gone = self._passages.gone()
        name, said = self._files()
        if before and (before.name, before.said) == (name, said):
            # Neither file is ever changed; to open a snapshot is to read it once.
            return replace(before, pending=pending, gone=gone, bound=self._settings.bound)
        if name and not _SNAPSHOT_NAME.fullmatch(name):
            raise RagError(
                f"open the index {self.folder}: what it says of its codes is damaged",
                "remove the folder and index again",
            )
        path = self.folder / name.decode() if name else None
        with reading(self.folder / _PASSAGES, "what it says of its rows"):
            _ = stored.file_of(said), Placement.read(said) if said is not None else None
        try:
            is_same = before is not None and before.name == name
            snapshot = before.snapshot if before and is_same else _native.Snapshot(path) if path else None
            kept = Stored.opened(self.folder, said, path, self._embedder.dimensions)
            if snapshot and not kept.placement.fits(snapshot.clusters):
                raise damaged(self.folder / _PASSAGES, "what it says of its rows")
        except (OSError, ValueError, RagError) as error:
            if self._files() != (name, said):
                # Another process has made one and removed this meanwhile.
                return self._read(before)
            is_damaged = isinstance(error, FileNotFoundError | ValueError | Damaged)
            if self._mends and is_damaged:
                snapshot, kept = self._salvaged(path, said)
                return Seen(snapshot, name, pending, gone, said, kept, self._settings.keeps_rows, None)
            if isinstance(error, RagError):
                raise
            tried = f"open the index {self.folder}: {error}"
            if is_damaged:
                raise Damaged(tried, REMADE) from None
            raise RagError(tried, "make that possible: the files of the index are as they were") from None
        if kept.is_lost and self._files() != (name, said):
            return self._read(before)
        return Seen(snapshot, name, pending, gone, said, kept, self._settings.keeps_rows, self._settings.bound)

    def _salvaged(self, path: Path | None, said: bytes | None) -> tuple[_native.Snapshot | None, Stored]:
        """What is whole of codes and rows: all rows as lost, if they are not as they were written."""
        with suppress(FileNotFoundError, ValueError):
            snapshot = _native.Snapshot(path) if path else None
            placement = Placement.read(said) if said is not None else Placement()
            if snapshot and placement.fits(snapshot.clusters):
                return snapshot, Stored(placement, None, stored.file_of(said))
        return None, Stored.salvaged(self.folder, said, self._embedder.dimensions)

    def _files(self) -> tuple[bytes | None, bytes | None]:
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
                raise Busy(
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


def made_by(folder: Path) -> Made | None:
    """What an index knows of the embedder that made it; nothing, if none did."""
    passages = Passages(folder / _PASSAGES)
    try:
        known = passages.setting(settings.EMBEDDER)
    finally:
        passages.close()
    return Made.read(known) if known else None


def _clusters(snapshot: _native.Snapshot, gone: set[int]) -> list[list[int]]:
    passages, starts = snapshot.passages(), snapshot.starts()
    return [[passage for passage in passages[start:end] if passage not in gone] for start, end in pairwise(starts)]


def _carried(
    folder: Path, snapshot: Path, seen: Seen, bare: frozenset[int], embedded: stored.Made, *, is_mended: bool
) -> dict[str, bytes]:
    """Writes what was kept of clusters as a new snapshot has them; returns what is to be known of it.

    What is not pending and whose row is damaged is `embedded` again; what has none only where it `is_mended`.
    """
    before = seen.stored.placement
    placement = Placement.of(before.memory - bare, before.disk - bare, bare)
    if placement == before and not placement.kept:
        return {}
    new = set(seen.pending.numbers.tolist())
    clusters = _clusters(_native.Snapshot(snapshot), set()) if placement.kept else []
    for cluster in placement.kept if not is_mended else ():
        # Of a row that is lost there is nothing to copy: searches embed it.
        known = seen.stored.has(clusters[cluster]) | new
        clusters[cluster] = [number for number in clusters[cluster] if number in known]
    source = Known(np.empty(0, np.uint32), seen.pending, Stored(), embedded)
    return {stored.SETTING: seen.stored.written(folder, snapshot, placement, clusters, source.vectors)}


def _serial(name: str) -> int:
    return int("".join(letter for letter in name if letter.isdigit()))


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int):
        raise RagError(f"search with {name}={value!r:.40}", "say a whole number")


def _checked(deviations: float) -> float:
    if not isinstance(deviations, float | int) or not math.isfinite(deviations) or deviations < 0:
        raise RagError(f"search with a bound of {deviations} standard errors", "say a number from 0 on")
    return deviations


def _several(names: Iterable[str]) -> list[str]:
    """Names of documents; one alone would be read letter by letter."""
    if isinstance(names, str):
        raise RagError(f"take {names!r} for names of documents", f"say a list of them: [{names!r}]")
    return list(names)
