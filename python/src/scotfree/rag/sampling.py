"""Questions that an index's searches are measured with, and what is nearest to them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from scotfree import _native
from scotfree.rag import calibration
from scotfree.rag.calibration import Bound, Complete, Found, Sample
from scotfree.rag.embed.batches import embed_all
from scotfree.rag.embed.embedder import Embedder, Vectors, embed_questions
from scotfree.rag.passages import Passages
from scotfree.rag.pending import Numbers
from scotfree.rag.placement.rows import Exact
from scotfree.rag.seen import Seen

_SEED: Final = 1
# Of what searches would take if they were to find another share of the nearest.
_OTHERS: Final = (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)


@dataclass(frozen=True)
class Measured:
    """What an index's searches find, for so many questions."""

    # The share of the nearest that they are to find.
    target: float
    found: Found
    questions: int
    # What other shares would take, where something nearer than codes is searched.
    others: list[Bound]

    @property
    def is_held(self) -> bool:
        """Whether as much is found as is to be."""
        return self.found.recall >= self.target


class Sampler:
    """Measures searches of an index, whose passages and embedder these are."""

    def __init__(self, passages: Passages, embedder: Embedder) -> None:
        self._passages, self._embedder = passages, embedder

    def drawn(self, numbers: Numbers, count: int) -> Vectors:
        """The embeddings of questions out of so many passages' texts."""
        chance = random.Random(_SEED)
        asked = calibration.questions(texts_drawn(self._passages, numbers.tolist(), count, chance), chance)
        return embed_questions(self._embedder, asked)

    def sample(
        self, seen: Seen, snapshot: _native.Snapshot, complete: Complete, questions: Vectors | None = None
    ) -> Sample:
        """Questions, drawn from the texts if they are not given, and what is nearest to each of them."""
        exact = seen.stored.exact
        numbers = np.array(snapshot.passages(), np.uint32)
        is_exact = exact is not None and bool(exact.has(numbers).all())
        if questions is None:
            count = calibration.QUESTIONS if is_exact else calibration.QUESTIONS_EMBEDDED
            questions = self.drawn(numbers, count)
        if exact is not None and is_exact:
            return Sample(questions, calibration.nearest(questions, exact.parts()))
        return Sample(questions, list(calibration.widest(snapshot, questions, complete)))

    def completing(self, seen: Seen) -> Complete:
        """With rows; what has none is embedded, once."""
        embedded = self._embedding()
        exact = seen.stored.exact
        return calibration.by_asking(embedded) if exact is None else _by_rows(exact, embedded)

    def others(self, seen: Seen, sample: Sample, complete: Complete) -> list[Bound]:
        """What searches would take to find other shares; of those that cannot be found none."""
        if seen.snapshot is None:
            return []
        return calibration.several(seen.snapshot, sample, _OTHERS, complete)

    def _embedding(self) -> calibration.Exactly:
        made: dict[int, Vectors] = {}

        def embedded(numbers: Sequence[int]) -> Vectors:
            texts = self._passages.texts([number for number in numbers if number not in made])
            vectors = embed_all(self._embedder, [text.embedded for text in texts.values()])
            made.update(zip(texts, vectors, strict=True))
            # Of one that was removed meanwhile: near to nothing.
            nothing = np.zeros(self._embedder.dimensions, np.float32)
            return np.array([made.get(number, nothing) for number in numbers], np.float32)

        return embedded


def texts_drawn(passages: Passages, numbers: Sequence[int], count: int, chance: random.Random) -> list[str]:
    """Of so many of these passages, drawn evenly, the texts; of those that another removed meanwhile none."""
    drawn = sorted(chance.sample(numbers, min(count, len(numbers))))
    texts = passages.texts(drawn)
    return [texts[number].text for number in drawn if number in texts]


def _by_rows(exact: Exact, embedded: calibration.Exactly) -> Complete:
    def complete(search: _native.Search, question: Vectors) -> int:
        count = 0
        while True:
            loaded, missing = exact.refine(search, question, calibration.BATCH)
            count += len(loaded) + len(missing)
            if not missing:
                return count
            search.give(list(zip(missing, (embedded(missing) @ question).tolist(), strict=True)))

    return complete
