"""What is compared, and how it is opened: our index, also of four bits, and the thesis' five configurations.

All of them split documents alike and look up texts in the same file, so that they differ in their search alone.
"""

from __future__ import annotations

import enum
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from scotfree.rag.documents import Document
from scotfree.rag.edge.index import Configuration, EdgeIndex, Settings, Texts
from scotfree.rag.embed.embedder import Embedder, Vectors, embed_questions
from scotfree.rag.evaluation.corpus import Part, Place, Progress
from scotfree.rag.evaluation.rows import Disk
from scotfree.rag.index import Index
from scotfree.rag.passages import Passages
from scotfree.rag.settings import Keep
from scotfree.rag.splitting import NEW
from scotfree.rag.stages import Staged

_PASSAGES: Final = "passages.sqlite"


class Mode(enum.Enum):
    """By the name that a user gives it."""

    OURS = "ours"
    SMALLEST = "smallest"
    FOUR_BITS = "four-bits"
    FLAT = "flat"
    IVF = "ivf"
    GENERATE = "ivf+gen"
    LOAD = "ivf+gen+load"
    EDGERAG = "edgerag"

    @property
    def is_ours(self) -> bool:
        """Whether it is one of our indexes."""
        return self in (Mode.OURS, Mode.SMALLEST, Mode.FOUR_BITS)

    @property
    def bits(self) -> float | None:
        """Of a dimension in the codes of ours, where not as many as its passages need."""
        return 4 if self is Mode.FOUR_BITS else None

    @property
    def keep(self) -> Keep:
        """What ours keeps of a passage."""
        return "rows" if self is Mode.OURS else "codes"

    @property
    def configuration(self) -> Configuration | None:
        """Which of the thesis' it is; nothing, if it is ours."""
        return None if self.is_ours else Configuration[self.name]

    @property
    def is_tuned(self) -> bool:
        """Whether it looks at as many clusters as it is told."""
        return not self.is_ours and self is not Mode.FLAT

    def folder(self, base: Path) -> Path:
        """Where it lies."""
        # Not in a folder in which an index of codes was called ours.
        return base / ("default" if self is Mode.OURS else self.name.lower().replace("_", "-"))


@dataclass(frozen=True)
class Opening:
    """How a mode is opened."""

    cache_bytes: int
    # Clusters that a question looks at; nothing where all are.
    probes: int | None
    slo_ns: float
    letter_ns: float

    def settings(self, configuration: Configuration) -> Settings:
        """The same as the thesis' index says it."""
        return Settings(configuration, self.slo_ns, self.letter_ns, self.cache_bytes)


@dataclass
class Outcome(Staged):
    """The nearest passages, and what finding them took: passages by what was done with them."""

    places: list[Place] = field(default_factory=list)
    # By its code.
    estimated: int = 0
    # Its embedding came from the disk, from the cache, from the model.
    loaded: int = 0
    cached: int = 0
    regenerated: int = 0


class Searcher(Protocol):
    """An index, open."""

    def search(self, question: str, count: int) -> Outcome:
        """The nearest passages, their texts read."""


@contextmanager
def opened(mode: Mode, base: Path, embedder: Embedder, opening: Opening) -> Iterator[Searcher]:
    """The index of a mode, of the folder in which all are."""
    if mode.configuration is None:
        with Index(mode.folder(base), embedder, cache_bytes=opening.cache_bytes) as index:
            yield _Ours(index)
    else:
        with passages(base) as texts:
            settings = opening.settings(mode.configuration)
            edge = EdgeIndex.opened(mode.folder(base), embedder, texts_of(texts, embedder), settings)
            yield _Theirs(edge, embedder, texts, opening.probes or edge.clusters)


@contextmanager
def passages(base: Path, mode: Mode = Mode.SMALLEST) -> Iterator[Passages]:
    """The texts of one of ours; the thesis' indexes have those of the smallest."""
    found = Passages(mode.folder(base) / _PASSAGES)
    try:
        yield found
    finally:
        found.close()


def build_ours(
    mode: Mode, base: Path, documents: Sequence[Document], embedder: Embedder, progress: Progress
) -> None:
    """An index of ours, or what is missing of one; progress is in documents."""
    assert mode.is_ours, mode
    with Index(mode.folder(base), embedder, bits=mode.bits, keep=mode.keep) as index:
        index.update(_counted(documents, progress))
        index.compact()


def _counted(documents: Sequence[Document], progress: Progress) -> Iterator[Document]:
    for document in documents:
        yield document
        progress(1)


def build_theirs(
    mode: Mode, base: Path, known: tuple[Sequence[Part], Vectors], embedder: Embedder, opening: Opening
) -> EdgeIndex:
    """An index of the thesis', made anew and saved: as many clusters as the root of its passages, as ours has."""
    assert mode.configuration, mode
    folder = mode.folder(base)
    if folder.exists():
        shutil.rmtree(folder)
    parts, vectors = known
    with passages(base) as store:
        numbers = {(document, start): number for number, document, start in store.places()}
        index = EdgeIndex(folder, embedder, texts_of(store, embedder), opening.settings(mode.configuration))
        own = [numbers[part.document, part.start] for part in parts]
        index.build(own, np.asarray(vectors), round(math.sqrt(len(own))))
    index.save()
    return index


def disk(mode: Mode, base: Path) -> Disk:
    """What of a mode is on the disk."""
    of, store = mode.folder(base), mode if mode.is_ours else Mode.SMALLEST
    codes = sum(path.stat().st_size for path in of.iterdir() if not path.name.startswith(_PASSAGES))
    with passages(base, store) as texts:
        sizes = texts.sizes()
    return Disk(codes, sizes.others_bytes, sizes.texts_bytes, sizes.words_bytes, sizes.free_bytes)


def nearest_of(store: Passages, found: Sequence[tuple[int, float]]) -> list[Place]:
    """Where passages are that the thesis' index found."""
    texts = store.texts([number for number, _ in found])
    return [(texts[number].document, texts[number].start) for number, _ in found]


class _Ours:
    def __init__(self, index: Index) -> None:
        self._index = index

    def search(self, question: str, count: int) -> Outcome:
        answer = self._index.search(question, count)
        places = [(hit.document, hit.start) for hit in answer.hits]
        return Outcome(
            answer.stages_ns, places, answer.estimated, answer.loaded, answer.cached, answer.regenerated
        )


class _Theirs:
    def __init__(self, index: EdgeIndex, embedder: Embedder, store: Passages, probes: int) -> None:
        self._index = index
        self._embedder = embedder
        self._store = store
        self._probes = probes

    def search(self, question: str, count: int) -> Outcome:
        outcome = Outcome()
        with outcome.stage("embed query"):
            vector = embed_questions(self._embedder, [question])[0]
        found = self._index.search(vector, count, self._probes)
        outcome.stages_ns |= found.stages_ns
        with outcome.stage("load"):
            outcome.places = nearest_of(self._store, found.nearest)
        outcome.loaded, outcome.cached, outcome.regenerated = found.loaded, found.cached, found.regenerated
        return outcome


def texts_of(store: Passages, embedder: Embedder) -> Texts:
    """The texts of passages, as the thesis' index asks for them: with what a new index embeds in front of them."""
    store.above_letters = NEW.above_letters(embedder)

    def texts(numbers: Sequence[int]) -> list[str]:
        found = store.texts(numbers)
        return [found[number].embedded for number in numbers]

    return texts
