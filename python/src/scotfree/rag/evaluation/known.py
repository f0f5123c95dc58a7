"""An embedder that remembers: what is measured otherwise need not wait for a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scotfree.rag.embed.embedder import Embedder, Vectors, embed_questions
from scotfree.rag.embed.prompts import Prompts


class Known:
    """Looks up texts whose embeddings are there; others are embedded, once."""

    def __init__(self, embedder: Embedder, texts: Sequence[str], vectors: Vectors) -> None:
        """`vectors` has a row for each text."""
        self.name = embedder.name
        self.digest = embedder.digest
        self.dimensions = embedder.dimensions
        self.tokens_max = embedder.tokens_max
        self.count_tokens = embedder.count_tokens
        self.prompts = getattr(embedder, "prompts", Prompts())
        self._embedder = embedder
        self._vectors = vectors
        self._rows = {text: row for row, text in enumerate(texts)}
        self._others: dict[str, Vectors] = {}
        self._questions: dict[str, Vectors] = {}

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        new = [text for text in dict.fromkeys(texts) if text not in self._rows and text not in self._others]
        if new:
            self._others |= dict(zip(new, self._embedder.embed(new), strict=True))
        found = np.empty((len(texts), self.dimensions), np.float32)
        for place, text in enumerate(texts):
            found[place] = self._others[text] if text in self._others else self._vectors[self._rows[text]]
        return found

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        """One row for each question, each of length one."""
        new = [text for text in dict.fromkeys(questions) if text not in self._questions]
        if new:
            self._questions |= dict(zip(new, embed_questions(self._embedder, new), strict=True))
        rows = [self._questions[question] for question in questions]
        return np.array(rows, np.float32).reshape(-1, self.dimensions)
