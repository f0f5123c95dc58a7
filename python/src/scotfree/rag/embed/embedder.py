"""What an index needs of an embedder, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

Vectors = np.ndarray[Any, np.dtype[np.float32]]


class Embedder(Protocol):
    """Makes a vector of a text; the same text has the same vector, whatever is embedded beside it."""

    # How people call it.
    name: str
    # 32 bytes: of all that decides what the vectors are. Vectors of unequal digests are not compared.
    digest: bytes
    dimensions: int
    # Tokens of a text beyond these are not read.
    tokens_max: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is."""
