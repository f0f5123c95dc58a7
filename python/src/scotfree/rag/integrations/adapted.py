"""An embedder over somebody else's embedding model.

Its vectors are brought to length one, so that what an index calls similarity is their cosine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import numpy as np

from scotfree.rag.embed.embedder import Embedder, Vectors, embed_questions
from scotfree.rag.embed.prompts import Prompts
from scotfree.rag.trouble import RagError

# Of a token, roughly.
_LETTERS: Final = 4
# Only documents that the index splits itself are measured in tokens, and frameworks give it none.
_TOKENS_MAX: Final = 512
# To see how many numbers a vector has.
_ANY_TEXT: Final = "text"

Rows = Sequence[Sequence[float]]


class Adapted:
    """An `Embedder` of a model whose `name` says all that decides what its vectors are."""

    def __init__(
        self, name: str, embed: Callable[[list[str]], Rows], ask: Callable[[str], Sequence[float]]
    ) -> None:
        """`embed` takes texts, `ask` a question, which some models embed in another way. A text is embedded."""
        self.name = name
        self.tokens_max = _TOKENS_MAX
        self._embed, self._ask = embed, ask
        self.dimensions = len(embed([_ANY_TEXT])[0])
        self.digest = hashlib.sha256(f"{name} {self.dimensions}".encode()).digest()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        # A service need not be asked for nothing.
        rows = fitted(self, self._embed(list(texts)) if texts else [])
        if len(rows) != len(texts):
            problem = f"embed with {self.name}: {len(texts)} texts have {len(rows)} vectors"
            raise RagError(problem, "use a model that makes one of each")
        return rows

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        """One row for each question, each of length one."""
        return fitted(self, [self._ask(question) for question in questions])

    def count_tokens(self, text: str) -> int:
        """Roughly: a token for every four letters."""
        return -(-len(text) // _LETTERS)


class Handed:
    """An embedder that is handed vectors for a while, which it need not make."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.digest = embedder.name, embedder.digest
        self.dimensions, self.tokens_max = embedder.dimensions, embedder.tokens_max
        self.count_tokens = embedder.count_tokens
        self.prompts = getattr(embedder, "prompts", Prompts())
        self._embedder = embedder
        self._vectors: Mapping[str, Vectors] = {}

    @contextmanager
    def handed(self, vectors: Mapping[str, Vectors]) -> Iterator[None]:
        """Meanwhile these texts have these rows."""
        self._vectors = vectors
        try:
            yield
        finally:
            self._vectors = {}

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        """One row for each question, each of length one."""
        return embed_questions(self._embedder, questions)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        # Another thread may take them away meanwhile.
        known = self._vectors
        missing = [text for text in texts if text not in known]
        vectors = dict(known) | dict(zip(missing, self._embedder.embed(missing), strict=True))
        return np.array([vectors[text] for text in texts], np.float32).reshape(-1, self.dimensions)


def ask(embedder: Embedder, question: str) -> Vectors:
    """The row of a question, of length one."""
    row: Vectors = embed_questions(embedder, [question])[0]
    return row


def fitted(embedder: Embedder, rows: Rows) -> Vectors:
    """Vectors of an embedder's model, of whatever length, as rows of length one.

    A `RagError` says if they cannot be its.
    """
    wrong = sorted({len(row) for row in rows} - {embedder.dimensions})
    if wrong:
        problem = f"take a vector for one of {embedder.name}: it has {wrong[0]} numbers, not {embedder.dimensions}"
        raise RagError(problem, "use one model for texts and questions")
    exact = np.array(rows, np.float64).reshape(-1, embedder.dimensions)
    norms = np.linalg.norm(exact, axis=1, keepdims=True)
    if not (np.isfinite(norms) & (norms > 0)).all():
        problem = f"take a vector for one of {embedder.name}: its numbers are all zero, or not all are numbers"
        raise RagError(problem, "leave out texts of which the model makes nothing, or use another")
    found: Vectors = (exact / norms).astype(np.float32)
    return found


def named(model: object) -> str:
    """What somebody else's model is called if nothing is said: its class, and its own word for its weights."""
    words = (type(model).__name__, getattr(model, "model_name", None), getattr(model, "model", None))
    return " ".join(dict.fromkeys(word for word in words if isinstance(word, str)))
