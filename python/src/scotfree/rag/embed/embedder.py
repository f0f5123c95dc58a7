"""What an index needs of an embedder, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np

from scotfree.rag.trouble import RagError

Vectors = np.ndarray[Any, np.dtype[np.float32]]

# By how much a vector's length may differ from one.
_LENGTH_OFF_MAX: Final = 0.01

# The model that is used where none is named.
DEFAULT: Final = "all-MiniLM-L6-v2"
# Where to run: `auto` takes a GPU where there is one that can be used.
Device = Literal["auto", "cpu", "cuda"]


class Embedder(Protocol):
    """Makes a vector of a text; the same text has the same vector, whatever is embedded beside it.

    One that embeds questions otherwise than passages has a method `embed_questions`, too, and says in `prompts`
    what it puts before either (see `prompts.Prompts`).
    """

    # By which `embed.by_name` makes it again.
    name: str
    # 32 bytes: of all that decides what the vectors are, up to the precision in which they are worked out.
    # Vectors of unequal digests are not compared.
    digest: bytes
    dimensions: int
    # Tokens of a text beyond these are not read.
    tokens_max: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is."""


def embed(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """What it makes of texts; a `RagError` says that these are no embeddings, before they are written anywhere."""
    return checked(f"embed passages with {embedder.name}", embedder, embedder.embed(texts), len(texts))


def embed_questions(embedder: Embedder, questions: Sequence[str]) -> Vectors:
    """As `embed`, of questions: by the embedder's `embed_questions`, where it has one, else as passages."""
    make = getattr(embedder, "embed_questions", embedder.embed)
    return checked(f"embed a question with {embedder.name}", embedder, make(questions), len(questions))


def checked(tried: str, embedder: Embedder, made: Any, count: int) -> Vectors:
    """So many rows of an embedder as what is searched for; a `RagError` says why they are not."""
    try:
        rows = np.asarray(made, np.float32)
    except (TypeError, ValueError) as error:
        raise RagError(f"{tried}: these are no rows of numbers: {error}", "mend what makes them") from None
    wanted = (count, embedder.dimensions)
    if count and rows.shape != wanted:
        raise RagError(f"{tried}: the rows are of shape {rows.shape}, not {wanted}", "mend what makes them")
    rows = rows.reshape(wanted)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    # What is no number is not within anything either.
    if not np.abs(lengths - 1).max(initial=0) <= _LENGTH_OFF_MAX:
        raise RagError(f"{tried}: a row has not the length one", "divide each by its length")
    return rows
