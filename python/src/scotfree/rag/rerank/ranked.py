"""What a reranker makes of what was found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from scotfree.rag.searching import Answer, Hit

# Of an answer, as its stages name it.
STAGE: Final = "cross-encoder"


@dataclass(frozen=True)
class Ranked(Hit):
    """A passage that was found and put in order; its similarity is still that of the embeddings."""

    # The reranker's, of any size: more is better.
    score: float = field(kw_only=True)


class Reranker(Protocol):
    """Puts what was found in order; `CrossEncoder` is one."""

    def rerank(self, question: str, hits: Sequence[Hit], count: int) -> list[Ranked]:
        """The `count` best of what was found, the best first."""


@dataclass(frozen=True)
class Reranking:
    """Who puts in order what was found, and of how many passages he chooses."""

    reranker: Reranker
    passages: int

    def wanted(self, count: int) -> int:
        """How many passages are to be found, if so many are to be shown."""
        return max(count, self.passages)

    def apply(self, question: str, answer: Answer, count: int) -> None:
        """Leaves the `count` best of an answer's hits in it, in their order; a stage of its own."""
        with answer.stage(STAGE):
            answer.hits = [*self.reranker.rerank(question, answer.hits, count)]
