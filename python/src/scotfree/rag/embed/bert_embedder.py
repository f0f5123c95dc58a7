"""What embedders that run a BERT's graph have in common: tokens, and batches of texts of nearly one length."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from scotfree.rag.embed.bert_folder import BertFolder, refused
from scotfree.rag.embed.embedder import Vectors

# Of one run, filling included: what a processor's cache holds.
_BATCH_TOKENS: Final = 1024
# In a batch no text is longer than another by more: with this and the above 171 passages took 3.4 CPU-seconds,
# with 2048 and 2 they took 3.6.
_WASTE_MAX: Final = 1.25
# What the two markers of a text's ends take.
_MARKERS: Final = 2

# Of a batch: batch x tokens.
Numbers = np.ndarray[Any, np.dtype[np.int64]]


class BertEmbedder(ABC):
    """A BERT encoder; loaded once, and from then on safe to be used by several threads."""

    def __init__(self, model: BertFolder, name: str) -> None:
        self.name = name
        self.dimensions = model.shape.width
        self.tokens_max = model.tokens_max
        self.digest = model.digest
        self._model = model
        # Texts of a batch are of nearly one length; filling all up to the longest there may be would cost most.
        self._tokenizer = _tokenizer(model)
        self._tokenizer.enable_truncation(model.tokens_max)

    @cached_property
    def _counter(self) -> Tokenizer:
        """Counts all tokens of a text: only who splits documents needs it."""
        counter = _tokenizer(self._model)
        counter.no_truncation()
        return counter

    @property
    @abstractmethod
    def device(self) -> str:
        """Where it runs: `CPU` or `CUDA`."""

    @abstractmethod
    def _run(self, ids: Numbers, mask: Numbers) -> Vectors:
        """One row for each text of a batch; the mask is 1 for its tokens and 0 for what fills it up."""

    @property
    def files_bytes(self) -> int:
        """Its weights and its tokenizer on the disk."""
        return self._model.files_bytes

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is, the markers of its ends aside."""
        return len(self._counter.encode(text).ids) - _MARKERS

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        tokens = [each.ids for each in self._tokenizer.encode_batch(list(texts))]
        vectors = np.empty((len(tokens), self.dimensions), np.float32)
        for places in _batches([len(each) for each in tokens]):
            vectors[places] = self._run(*_filled([tokens[place] for place in places]))
        return vectors


def _tokenizer(model: BertFolder) -> Tokenizer:
    try:
        found = Tokenizer.from_file(str(model.path / "tokenizer.json"))
    except Exception as error:
        # The library has no class of errors of its own.
        raise refused(model.name, error) from None
    found.no_padding()
    return found


def _filled(tokens: list[list[int]]) -> tuple[Numbers, Numbers]:
    """Texts' tokens as one block, and which of it are tokens."""
    longest = max(map(len, tokens))
    ids, mask = (np.zeros((len(tokens), longest), np.int64) for _ in range(2))
    for row, each in enumerate(tokens):
        ids[row, : len(each)] = each
        mask[row, : len(each)] = 1
    return ids, mask


def _batches(lengths: list[int]) -> Iterator[list[int]]:
    """Places of texts of nearly one length, so many that filling them up takes few tokens."""
    batch: list[int] = []
    # The longest first: what memory a run takes is known from the first one.
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        longest = lengths[batch[0]] if batch else 0
        if batch and ((len(batch) + 1) * longest > _BATCH_TOKENS or lengths[place] * _WASTE_MAX < longest):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch
