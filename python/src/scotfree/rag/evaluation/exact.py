"""Exact search over all embeddings: what every other search is measured by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from scotfree.rag import calibration
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation.corpus import Part, Progress

# Passages by which a search is compared.
COUNT: Final = calibration.COUNT
# Questions and embeddings that are multiplied at once.
_QUESTIONS: Final = 32
_ROWS: Final = 16_384


@dataclass(frozen=True)
class Nearest:
    """Of one question."""

    # The rows of its nearest passages, the nearest first.
    rows: list[int]
    # Their least similarity: whatever is as near counts as found rightly.
    least: float
    # Names of documents, by the similarity of the best of their passages.
    documents: list[str]


class Exact:
    """Passages with their embeddings, documents' passages side by side."""

    def __init__(self, parts: Sequence[Part], vectors: Vectors) -> None:
        self._vectors = vectors
        starts = [
            0,
            *(row for row, (one, next_) in enumerate(pairwise(parts), 1) if one.document != next_.document),
        ]
        self._starts = starts if parts else []
        self._names = [parts[row].document for row in self._starts]

    def nearest(self, questions: Vectors, documents: int, progress: Progress = lambda _: None) -> list[Nearest]:
        """Of each question its nearest `COUNT` passages, and so many documents; progress is in questions."""
        found = []
        for at in range(0, len(questions), _QUESTIONS):
            for similarities in self._similarities(questions[at : at + _QUESTIONS]):
                found.append(self._nearest(similarities, documents))
                progress(1)
        return found

    def share(self, question: Vectors, nearest: Nearest, rows: Sequence[int]) -> float:
        """How much of the nearest the rows are, from 0 to 1."""
        if not nearest.rows:
            return 1.0
        similarities = self._vectors[sorted(set(rows))] @ question
        # Multiplied one by one and in matrices, products differ in their last digits.
        right = int((similarities >= nearest.least - calibration.SAME).sum())
        return min(right, len(nearest.rows)) / len(nearest.rows)

    def _similarities(self, questions: Vectors) -> Iterator[np.ndarray[Any, Any]]:
        blocks = [
            questions @ np.asarray(self._vectors[at : at + _ROWS]).T for at in range(0, len(self._vectors), _ROWS)
        ]
        yield from np.concatenate([np.empty((len(questions), 0), np.float32), *blocks], axis=1)

    def _nearest(self, similarities: np.ndarray[Any, Any], documents: int) -> Nearest:
        rows = np.argsort(-similarities, kind="stable")[:COUNT]
        best = np.maximum.reduceat(similarities, self._starts) if self._starts else similarities
        order = np.argsort(-best, kind="stable")[:documents]
        least = float(similarities[rows[-1]]) if len(rows) else 0.0
        return Nearest(rows.tolist(), least, [self._names[place] for place in order])
