"""What a reranker makes of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from scotfree.rag.searching import Hit


@dataclass(frozen=True)
class Ranked(Hit):
    """A passage that was found and put in order; its similarity is still that of the embeddings."""

    # The reranker's, of any size: more is better.
    score: float = field(kw_only=True)


class Reranker(Protocol):
    """Puts what was found in order; `CrossEncoder` is one."""

    def rerank(self, question: str, hits: Sequence[Hit], count: int) -> list[Ranked]:
        """The `count` best of what was found, the best first."""
