"""A collection made as large as is wanted: passages that are like those that there are, but each another.

Each passage that is added is one of the collection's with a number before it. Its embedding is that one's, moved
as passages of one cluster lie apart: by a normal value along each axis, drawn from the number. Whoever embeds its
text runs the model on all of it that is text, so that it costs what any passage costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag import clustering
from scotfree.rag.embed.embedder import Embedder, Vectors

_SEED: Final = 1
# Between the number and the text.
_MARK: Final = "\N{SYMBOL FOR UNIT SEPARATOR}"
# Passages that are made at once.
_ROWS: Final = 20_000


class Spread:
    """An embedder of such passages, and of questions, which have no number."""

    def __init__(self, model: Embedder, file: Path) -> None:
        """`file` has how passages of a cluster lie apart (see `learn`)."""
        self.name = f"{model.name} spread"
        self.digest, self.dimensions, self.tokens_max = model.digest, model.dimensions, model.tokens_max
        self.count_tokens = model.count_tokens
        self._model = model
        self._apart = np.load(file)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        parted = [text.partition(_MARK) for text in texts]
        vectors = self._model.embed([own if mark else whole for whole, mark, own in parted])
        numbered = [row for row, (_, mark, _) in enumerate(parted) if mark]
        numbers = [int(parted[row][0]) for row in numbered]
        vectors[numbered] = moved(vectors[numbered], numbers, self._apart)
        return vectors


def learn(vectors: Vectors, file: Path) -> None:
    """Writes how passages lie around their cluster's centroid: the square root of their covariance."""
    centres = clustering.centroids(vectors, round(len(vectors) ** 0.5), _SEED)
    residuals = vectors - centres[clustering.nearest(vectors, centres)]
    variances, axes = np.linalg.eigh(np.cov(residuals.T, bias=True).astype(np.float64))
    np.save(file, (axes * np.sqrt(np.maximum(variances, 0))).astype(np.float32))


def moved(vectors: Vectors, numbers: Sequence[int], apart: Vectors) -> Vectors:
    """The embeddings of passages with these numbers, made of their texts'."""
    drawn = [np.random.default_rng([_SEED, number]).standard_normal(len(apart), np.float32) for number in numbers]
    found = vectors + np.array(drawn, np.float32).reshape(-1, len(apart)) @ apart.T
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    return found


def numbered(number: int, text: str) -> str:
    """A passage's text."""
    return f"{number}{_MARK}{text}"


def number_of(text: str) -> int:
    """The number of a passage, by its text."""
    return int(text.partition(_MARK)[0])


def unnumbered(text: str) -> str:
    """The same without numbers before passages."""
    return text.replace(_MARK, " ")


def blocks(vectors: Vectors, count: int, file: Path) -> Iterator[tuple[range, Any]]:
    """All embeddings, some at a time: passage `number` is made of the text `number % len(vectors)`."""
    apart, kept = np.load(file), np.asarray(vectors)
    for at in range(0, count, _ROWS):
        numbers = range(at, min(at + _ROWS, count))
        yield (
            numbers,
            moved(kept[np.array(numbers) % len(kept)], numbers, apart),
        )
