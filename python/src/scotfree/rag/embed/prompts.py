"""What stands before a text that is embedded: by it some models tell a question from a passage.

Invariant: an embedder without prompts has the digest that it had before there were any.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.trouble import RagError

# What sentence-transformers calls them; of several for passages the first that is there counts.
_QUERY = ("query",)
_PASSAGE = ("document", "passage", "corpus")


class Said(TypedDict):
    """Prompts as somebody names them, each or not: of one that is not named the model's own counts."""

    query_prompt: str | None
    passage_prompt: str | None


@dataclass(frozen=True)
class Prompts:
    """What stands before a question, and what before a passage."""

    query: str = ""
    passage: str = ""

    @classmethod
    def named(cls, prompts: Mapping[str, Any], default: str | None) -> Prompts:
        """Out of those of sentence-transformers by their names; `default` is taken where neither is named."""
        said = [next((name for name in names if name in prompts), default) for names in (_QUERY, _PASSAGE)]
        if missing := [name for name in said if name is not None and not isinstance(prompts.get(name), str)]:
            raise ValueError(f"its prompt {missing[0]} is no text")
        query, passage = (prompts[name] if name is not None else "" for name in said)
        return cls(query, passage)

    def replaced(self, query: str | None, passage: str | None) -> Prompts:
        """These, but for those that are said."""
        return Prompts(self.query if query is None else query, self.passage if passage is None else passage)

    def digest(self, model: bytes) -> bytes:
        """Of an embedder whose model has that digest."""
        if self == Prompts():
            return model
        return hashlib.sha256(b"prompts" + json.dumps(asdict(self), sort_keys=True).encode() + model).digest()

    def __str__(self) -> str:
        """As a message says it."""
        return f"{self.query!r} before questions and {self.passage!r} before passages"


class Prompting(ABC):
    """An embedder that puts its prompts before texts."""

    prompts: Prompts

    @abstractmethod
    def _embedded(self, texts: Sequence[str], prompt: str) -> Vectors:
        """One row for each text with the prompt before it, each of length one."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each passage, each of length one."""
        return self._embedded(texts, self.prompts.passage)

    def embed_questions(self, questions: Sequence[str]) -> Vectors:
        """One row for each question, each of length one."""
        return self._embedded(questions, self.prompts.query)


def prefixed(texts: Sequence[str], prompt: str) -> list[str]:
    """Texts with the prompt before them."""
    return [prompt + text for text in texts]


def tokens_left(name: str, tokens_max: int, taken: int) -> int:
    """Of the tokens that a model reads, those that its prompt leaves; a `RagError` says that it leaves few."""
    if taken > tokens_max // 2:
        raise RagError(
            f"embed with {name}: the prompt before passages is {taken} tokens of the {tokens_max} that it reads",
            "say a shorter one",
        )
    return tokens_max - taken
