"""What embedders that run an encoder's graph have in common: tokens, and batches of texts of nearly one length."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from scotfree.rag.embed.bert_folder import BertFolder, refused
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.embed.prompts import Prompting, Prompts, prefixed, tokens_left
from scotfree.rag.embed.sessions import Numbers

# Of one run, filling included: what a processor's cache holds.
_BATCH_TOKENS: Final = 1024
# In a batch no text is longer than another by more: with this and the above 171 passages took 3.4 CPU-seconds,
# with 2048 and 2 they took 3.6.
_WASTE_MAX: Final = 1.25


class BertEmbedder(Prompting):
    """An encoder; loaded once, and from then on safe to be used by several threads."""

    # Whether texts are run one by one: not, where what stands beside one does not change its vector.
    _is_one_by_one = False

    def __init__(self, model: BertFolder, name: str, prompts: Prompts) -> None:
        self.name = name
        self.prompts = prompts
        self.digest = prompts.digest(self._digest_of(model))
        self._model = model
        if not model.pooling.has_prompt and prompts != Prompts():
            raise refused(model.name, ValueError("its pooling leaves prompts out, which is not supported"))
        # Texts of a batch are of nearly one length; filling all up to the longest there may be would cost most.
        try:
            self._tokenizer = tokenizer(model.path)
        except Exception as error:
            # The library has no class of errors of its own.
            raise refused(model.name, error) from None
        self._check_words()
        self._tokenizer.enable_truncation(model.tokens_max)
        self.tokens_max = tokens_left(name, model.tokens_max, self._taken(prompts.passage))
        self.dimensions = _dimensions(model)

    @staticmethod
    def _digest_of(model: BertFolder) -> bytes:
        """Of all that decides the vectors but for prompts."""
        return model.digest

    def _check_words(self) -> None:
        """Refuses another model's tokenizer, where it shows."""
        most, known = self._model.words, self._tokenizer.get_vocab_size(with_added_tokens=True)
        if most is not None and known > most:
            problem = f"its tokenizer knows {known:,} tokens and its weights {most:,}: it is another model's"
            raise refused(self._model.name, ValueError(problem))

    def _taken(self, prompt: str) -> int:
        return self.count_tokens(prompt) if prompt else 0

    def _learn_dimensions(self) -> None:
        """Of a ready graph, which says nothing of them before it is run."""
        if self._model.shape is None:
            tokens = self._tokenizer.encode("").ids or [self._model.filler]
            self.dimensions = self._run(*filled([tokens], self._model.filler)).shape[1]

    @cached_property
    def _counter(self) -> Tokenizer:
        """Counts all tokens of a text: only who splits documents needs it."""
        counter = tokenizer(self._model.path)
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
        return len(self._counter.encode(text, add_special_tokens=False).ids)

    def _embedded(self, texts: Sequence[str], prompt: str) -> Vectors:
        tokens = [each.ids for each in self._tokenizer.encode_batch(prefixed(texts, prompt))]
        vectors = np.empty((len(tokens), self.dimensions), np.float32)
        lengths = [len(each) for each in tokens]
        for places in ([place] for place in range(len(tokens))) if self._is_one_by_one else batches(lengths):
            vectors[places] = self._run(*filled([tokens[place] for place in places], self._model.filler))
        return vectors


def tokenizer(folder: Path) -> Tokenizer:
    """That of a model in a folder; an `Exception` of no class of its own says what is wrong with it."""
    found = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found.no_padding()
    return found


def _dimensions(model: BertFolder) -> int:
    """Of a graph of ours; those of a ready one are learnt."""
    if model.pooling.layers:
        return len(model.pooling.layers[-1].weight)
    return model.shape.width if model.shape else 0


def filled(tokens: Sequence[Sequence[int]], filler: int) -> tuple[Numbers, Numbers]:
    """Texts' tokens as one block, filled up with one that means nothing, and which of it are tokens."""
    longest = max(map(len, tokens))
    ids, mask = np.full((len(tokens), longest), filler, np.int64), np.zeros((len(tokens), longest), np.int64)
    for row, each in enumerate(tokens):
        ids[row, : len(each)] = each
        mask[row, : len(each)] = 1
    return ids, mask


def batches(lengths: list[int]) -> Iterator[list[int]]:
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
