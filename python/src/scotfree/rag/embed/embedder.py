"""What an index needs of an embedder, whichever it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import numpy as np

Vectors = np.ndarray[Any, np.dtype[np.float32]]

# The model that is used where none is named.
DEFAULT: Final = "all-MiniLM-L6-v2"
# Where to run: `auto` takes a GPU where there is one that can be used.
Device = Literal["auto", "cpu", "cuda"]


class Embedder(Protocol):
    """Makes a vector of a text; the same text has the same vector, whatever is embedded beside it."""

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
