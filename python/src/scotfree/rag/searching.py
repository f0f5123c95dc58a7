"""One search of an index: estimates of all passages, then exact values of those that may be among the nearest."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scotfree import _native
from scotfree.rag import calibration
from scotfree.rag.cache import Cache
from scotfree.rag.copies import Copies, Place
from scotfree.rag.embed.batches import BATCH_PASSAGES
from scotfree.rag.embed.embedder import Embedder, Vectors, embed
from scotfree.rag.generate.model import Written
from scotfree.rag.lending import lent
from scotfree.rag.passages import Passages, Text
from scotfree.rag.pending import Scored
from scotfree.rag.seen import Seen
from scotfree.rag.stages import Staged

# Passages that are embedded at once, after as many as are looked for: more are seldom needed by then.
_ASKED: Final = 4
# Codes of so many bits a dimension are searched by their estimates alone.
BITS_EXACT_ENOUGH: Final = 3
# Of clusters without codes those are looked through that are among so many nearest: an eighth of all, of few some.
_BARE_PART: Final = 8
_BARE_MIN: Final = 4
# By how little the first ranks of two orders count more than those behind.
_FUSION: Final = 60


@dataclass(frozen=True)
class Asked:
    """What is looked for, and how carefully."""

    count: int
    probes: int | None
    # None: as the index was measured to need.
    deviations: float | None
    # Passages that are not to be found.
    outside: _native.PassageSet
    # Of which passages are to be found, too; none, if the embedding alone counts.
    words: str


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
    # Where else the same passage stands, of a search that shows it once.
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
    # Those whose exact values were asked for: of several times in one, if they lay beside the codes.
    rounds: list[list[int]] = field(default_factory=list)
    # What a language model made of it, if one was asked.
    written: Written | None = None


class Finder:
    """Finds passages, and keeps what it embedded for the next time."""

    def __init__(self, passages: Passages, embedder: Embedder, cache_bytes: int) -> None:
        self._passages, self._embedder = passages, embedder
        self._cache, self._lock = Cache(cache_bytes), threading.Lock()

    @property
    def cache_bytes(self) -> tuple[int, int]:
        """How much is kept, and at most."""
        return self._cache.bytes, self._cache.bytes_max

    def cool(self) -> None:
        """Forgets what it embedded."""
        with self._lock:
            self._cache = Cache(self._cache.bytes_max)

    def find(self, seen: Seen, answer: Answer, vector: Vectors, asked: Asked) -> list[Scored]:
        """The nearest passages to a vector; `Settled` says that `seen` is no more."""
        with answer.stage("score"):
            known = seen.pending.nearest(vector, asked.count, asked.outside)
        if seen.snapshot is None:
            return known
        is_guessed = guesses(seen)
        said = careful(seen) if asked.deviations is None else asked.deviations
        with answer.stage("centroid search and scan"):
            search = _begun(seen, seen.snapshot, vector, asked, 0.0 if is_guessed else said)
        search.give(known)
        answer.estimated = search.estimated
        for at in range(0, search.certain, BATCH_PASSAGES):
            self._ask(seen, answer, search, vector, min(BATCH_PASSAGES, search.certain - at))
        if is_guessed:
            return search.guessed()
        self._refine(seen, answer, search, vector, asked.count)
        return search.found()

    def fused(self, seen: Seen, answer: Answer, vector: Vectors, asked: Asked, near: list[Scored]) -> list[Scored]:
        """The orders by embedding and by words as one (Cormack, Clarke and Büttcher, SIGIR 2009).

        Passages with a name that few others have are an order, too: who asks by one means where it stands. Of
        those that are as good, those come first that the words find, if these are fewer than are asked for.
        """
        with answer.stage("words"):
            with_words = self._passages.with_words(asked.words, asked.count + len(asked.outside))
            worded = [number for number in with_words if number not in asked.outside][: asked.count]
            with_names = self._passages.with_names(asked.words)
            named = [number for number in worded if number in with_names]
        similarities = dict(near)
        others = [number for number in worded if number not in similarities]
        similarities |= self._exact(seen, answer, others, vector)
        ranks: dict[int, float] = dict.fromkeys(similarities, 0.0)
        for order in ([number for number, _ in near], worded, named):
            for rank, number in enumerate(order, 1):
                if number in ranks:
                    ranks[number] += 1 / (_FUSION + rank)
        places = {number: place for place, number in enumerate(worded if len(worded) < asked.count else ())}
        last = len(places)
        first = sorted(ranks, key=lambda number: (-ranks[number], places.get(number, last), number))[: asked.count]
        return [(number, similarities[number]) for number in first]

    def vectors(self, seen: Seen, answer: Answer, texts: Mapping[int, str]) -> dict[int, Vectors]:
        """The embeddings of passages with these texts: kept, or made again."""
        with answer.stage("load"):
            kept = seen.stored.vectors(list(texts))
        answer.loaded += len(kept)
        return kept | self._made(answer, {number: text for number, text in texts.items() if number not in kept})

    def _refine(self, seen: Seen, answer: Answer, search: _native.Search, vector: Vectors, count: int) -> None:
        """Exact values of those that may be among the nearest, until no other may."""
        asked = calibration.BATCH if seen.keeps_rows else _ASKED
        most = max(asked, count - len(search.found()))
        exact = seen.stored.exact
        if exact is None:
            while self._ask(seen, answer, search, vector, most):
                most = asked
            return
        while True:
            with answer.stage("load"):
                loaded, missing = exact.refine(search, vector, most)
            answer.loaded += len(loaded)
            answer.rounds += [some for some in ([*loaded, *missing],) if some]
            if not missing:
                return
            search.give(self._embedded(answer, missing, vector))
            most = asked

    def _ask(self, seen: Seen, answer: Answer, search: _native.Search, vector: Vectors, most: int) -> bool:
        """Whether some may be among the nearest, of which as many are given their exact values."""
        wanted = search.ask(most)
        if wanted:
            answer.rounds.append(wanted)
            search.give(self._exact(seen, answer, wanted, vector))
        return bool(wanted)

    def _exact(self, seen: Seen, answer: Answer, numbers: Sequence[int], vector: Vectors) -> list[Scored]:
        """The similarities of passages, kept or embedded again; of those that another removed meanwhile some."""
        with answer.stage("load"):
            known, kept = seen.stored.products(numbers, vector)
        answer.loaded += len(known)
        has_row = set(known)
        others = [number for number in numbers if number not in has_row]
        return [*zip(known, kept, strict=True), *self._embedded(answer, others, vector)]

    def _embedded(self, answer: Answer, numbers: Sequence[int], vector: Vectors) -> list[Scored]:
        """The similarities of passages that have no rows."""
        if not numbers:
            return []
        with answer.stage("load"):
            texts = {number: found.embedded for number, found in self._passages.texts(numbers).items()}
        vectors = self._made(answer, texts)
        with answer.stage("rerank"):
            return [(number, float(found @ vector)) for number, found in vectors.items()]

    def _made(self, answer: Answer, texts: Mapping[int, str]) -> dict[int, Vectors]:
        """The embeddings of passages that have no rows: cached, or made again."""
        if not texts:
            return {}
        with answer.stage("cache"), self._lock:
            cached = {number: self._cache.get(number) for number in texts}
        missing = [number for number, found in cached.items() if found is None]
        with answer.stage("regenerate"):
            made = embed(self._embedder, [texts[number] for number in missing])
        with answer.stage("cache"), self._lock:
            for number, embedding in zip(missing, made, strict=True):
                self._cache.put(number, embedding.copy(), len(texts[number]))
        answer.cached += len(cached) - len(missing)
        answer.regenerated += len(missing)
        found = {number: vector for number, vector in cached.items() if vector is not None}
        return found | dict(zip(missing, made, strict=True))


def hit(text: Text, similarity: float, copies: Copies | None = None) -> Hit:
    """A passage that was found, of which a search that shows a text once knows the copies."""
    number, document, start, passage, metadata, *_ = text
    found = object.__new__(Hit)
    # What a frozen class does to each attribute by itself takes three times as long.
    found.__dict__.update(
        number=number,
        text=passage,
        document=document,
        start=start,
        similarity=similarity,
        metadata=metadata,
        location=text.location,
        section=text.section,
        copies=copies.of(text) if copies else [],
    )
    return found


def _begun(
    seen: Seen, snapshot: _native.Snapshot, vector: Vectors, asked: Asked, deviations: float
) -> _native.Search:
    clusters = snapshot.clusters
    probes = clusters if asked.probes is None else min(max(asked.probes, 0), clusters)
    gone, near = seen.gone_set | asked.outside, bare_probes(clusters)
    return snapshot.search(lent(vector), asked.count, probes, deviations, gone, bare_probes=near)


def careful(seen: Seen) -> float:
    """How many standard errors an estimate's bound is away, where a search says nothing else."""
    return seen.bound.deviations if seen.bound else calibration.DEVIATIONS


def guesses(seen: Seen) -> bool:
    """Whether its codes' estimates are what it finds by: they are near enough, and it keeps nothing nearer."""
    snapshot = seen.snapshot
    return snapshot is not None and not seen.keeps_rows and is_exact_enough(snapshot.bits, snapshot.dimensions)


def is_exact_enough(bits: float, dimensions: int) -> bool:
    """Whether codes of so many bits need no exact values beside them."""
    return bits >= BITS_EXACT_ENOUGH * dimensions


def bare_probes(clusters: int) -> int:
    """How many of so many clusters are looked through if they have no codes: the nearest."""
    return max(_BARE_MIN, -(-clusters // _BARE_PART))
