"""What all modes are compared on: a collection's passages, their embeddings, and what exact search finds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.evaluation import judged
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.evaluation.corpus import Part, Place, digest, embeddings, parts
from scotfree.rag.evaluation.exact import Exact, Nearest
from scotfree.rag.evaluation.known import Known
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.trouble import RagError

# Questions that are embedded before something is shown.
_AT_ONCE: Final = 64
# Passages whose embedding is timed.
_TIMED: Final = 128
_TIMES: Final = 3
_SEED: Final = 1


@dataclass(frozen=True)
class Prepared:
    """A collection, ready to be searched exactly."""

    collection: Collection
    # The folder of its indexes.
    base: Path
    model: Embedder
    # Of passages with their embeddings, a row each.
    known: Known
    parts: list[Part]
    vectors: Vectors
    # Of each question its embedding, and what exact search finds.
    questions: Vectors
    exact: Exact
    nearest: list[Nearest]

    def share(self, question: int, places: Sequence[Place]) -> float:
        """How much of what exact search finds for a question is at the places, from 0 to 1."""
        rows = [self._rows[place] for place in places]
        return self.exact.share(self.questions[question], self.nearest[question], rows)

    def text(self, place: Place) -> str:
        """Of the passage that is there."""
        return self.parts[self._rows[place]].text

    def relevant(self, question: int) -> list[str]:
        """The texts of documents that were judged to be relevant to a question, the best grades first."""
        name = list(self.collection.questions)[question]
        grades = self.collection.judgements.get(name, {})
        by_grade = sorted((name for name, grade in grades.items() if grade > 0), key=lambda name: -grades[name])
        return [self._documents[name] for name in by_grade if name in self._documents]

    @cached_property
    def _documents(self) -> dict[str, str]:
        return {document.name: document.text for document in self.collection.documents}

    @cached_property
    def _rows(self) -> dict[Place, int]:
        return {(part.document, part.start): row for row, part in enumerate(self.parts)}

    def letter_ns(self) -> float:
        """What a letter takes to be embedded, by passages chosen at random (seed 1).

        The least of some times: what else a machine does adds to them, and takes nothing away.
        """
        chosen = np.random.default_rng(_SEED).permutation(len(self.parts))[:_TIMED]
        texts = [self.parts[row].embedded for row in chosen]
        self.model.embed(texts[:1])
        return min(self._embedding_ns(texts) for _ in range(_TIMES)) / sum(map(len, texts))

    def _embedding_ns(self, texts: Sequence[str]) -> int:
        began = time.perf_counter_ns()
        self.model.embed(texts)
        return time.perf_counter_ns() - began


def prepare(collection: Collection, folder: Path, model: Embedder, shown: Shown) -> Prepared:
    """Splits, embeds and searches exactly; embeddings that are in the folder are not made again."""
    with shown.bar("splitting", len(collection.documents), "document") as progress:
        split = parts(collection.documents, model, progress)
    if not split:
        raise RagError("evaluate a collection: no document has a text", "name another")
    # A folder of its own for whatever decides what is in an index: what is there is right, or not there yet.
    base = folder / digest(model, (repr(part) for part in split))
    texts = [part.embedded for part in split]
    with shown.bar("embedding", len(texts), "passage") as progress:
        vectors = embeddings(base, model, texts, progress)
    known, exact = Known(model, texts, vectors), Exact(split, vectors)
    questions = _embedded(known, list(collection.questions.values()), shown)
    with shown.bar("searching exactly", len(questions), "question") as progress:
        nearest = exact.nearest(questions, judged.MANY, progress)
    return Prepared(collection, base, model, known, split, vectors, questions, exact, nearest)


def _embedded(known: Known, questions: Sequence[str], shown: Shown) -> Vectors:
    found = [np.empty((0, known.dimensions), np.float32)]
    with shown.bar("embedding questions", len(questions), "question") as progress:
        for at in range(0, len(questions), _AT_ONCE):
            found.append(known.embed_questions(questions[at : at + _AT_ONCE]))
            progress(len(found[-1]))
    return np.concatenate(found)
