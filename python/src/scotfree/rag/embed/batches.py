"""Texts embedded some at a time: as many as an interruption may lose, and as are in memory at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from scotfree.rag.embed.embedder import Embedder, Vectors, embed

# Passages whose tokens are in memory at once, and that an interruption loses: some seconds of embedding.
BATCH_PASSAGES: Final = 128


def embed_each(embedder: Embedder, texts: Sequence[str]) -> Iterator[Vectors]:
    """The embedding of each text in their order, made as they are asked for."""
    for at in range(0, len(texts), BATCH_PASSAGES):
        yield from embed(embedder, texts[at : at + BATCH_PASSAGES])


def embed_all(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """One row of length one for each text (texts x dimensions)."""
    return np.array(list(embed_each(embedder, texts)), np.float32).reshape(-1, embedder.dimensions)
