"""Embeddings by a server that speaks OpenAI's protocol: every text is sent there.

Its digest is of its address, its model's name and the vectors' dimensions: all that is known. If another model is
put behind the same name, nobody notices; its vectors would be compared with the old ones'.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from scotfree.rag.embed.asking import Asking
from scotfree.rag.embed.bert_folder import package
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.embed.prompts import Prompting, Prompts, prefixed, tokens_left
from scotfree.rag.trouble import RagError

# Texts of one question: the least that servers are known to take at once.
_BATCH_TEXTS: Final = 32
# No model of the last years reads less.
_TOKENS_MAX: Final = 256
# By which the vectors' dimensions are learnt.
_FIRST: Final = "dimensions"


class EndpointEmbedder(Prompting):
    """A model behind an address such as `https://host/v1`; safe to be used by several threads."""

    def __init__(
        self,
        url: str,
        model: str,
        *,
        wait: Callable[[float], None] = time.sleep,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> None:
        """Asks once, for the dimensions; the key is that of SCOTFREE_EMBED_KEY. Without prompts there are none.

        A `RagError` says what is wrong, as do those of all later questions.
        """
        if not model:
            raise RagError(f"embed with the endpoint {url}: no model is named", "say endpoint:URL#MODEL")
        self._endpoint = Asking(url, wait)
        self._asked_for = model
        self.name = f"endpoint:{self._endpoint.url}#{model}"
        self.dimensions = len(self._vectors([_FIRST])[0])
        said = json.dumps([self._endpoint.url, model, self.dimensions])
        self.prompts = Prompts().replaced(query_prompt, passage_prompt)
        self.digest = self.prompts.digest(hashlib.sha256(f"endpoint {said}".encode()).digest())
        taken = self.count_tokens(self.prompts.passage) if self.prompts.passage else 0
        self.tokens_max = tokens_left(self.name, _TOKENS_MAX, taken)

    @cached_property
    def _counter(self) -> Tokenizer:
        """The server's own is not known: this one's tokens are about as long, and split as the default does."""
        counter = Tokenizer.from_file(str(package() / "tokenizer.json"))
        counter.no_truncation()
        counter.no_padding()
        return counter

    def count_tokens(self, text: str) -> int:
        """About how many tokens a text is."""
        return len(self._counter.encode(text, add_special_tokens=False).ids)

    def _embedded(self, texts: Sequence[str], prompt: str) -> Vectors:
        asked = prefixed(texts, prompt)
        vectors = np.empty((len(texts), self.dimensions), np.float32)
        for at in range(0, len(texts), _BATCH_TEXTS):
            found = self._vectors(asked[at : at + _BATCH_TEXTS])
            if found.shape[1] != self.dimensions:
                raise self._odd(f"its vectors have {found.shape[1]} dimensions, and had {self.dimensions} before")
            vectors[at : at + len(found)] = found
        return vectors

    def _vectors(self, texts: Sequence[str]) -> Vectors:
        body = {"model": self._asked_for, "input": list(texts), "encoding_format": "float"}
        found = self._read(self._endpoint.post("embeddings", body), len(texts))
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise self._odd("a vector has no length")
        scaled: Vectors = (found / lengths).astype(np.float32)
        return scaled

    def _read(self, answer: Any, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The rows in the order of the texts: the protocol numbers them."""
        try:
            by_place = {row["index"]: row["embedding"] for row in answer["data"]}
            found = np.array([by_place[place] for place in range(count)], np.float64)
        except (KeyError, TypeError, ValueError):
            raise self._odd(f"what it answers are no embeddings of {count} texts") from None
        if found.ndim != 2 or len(by_place) != count:
            raise self._odd(f"what it answers are no embeddings of {count} texts")
        return found

    def _odd(self, problem: str) -> RagError:
        return self._endpoint.error(problem, "name a model that embeds texts")
