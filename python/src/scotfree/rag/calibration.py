"""How careful a search has to be, so that it finds the share of the nearest passages that was asked for.

A search leaves out what by its code's bound cannot be among the nearest. How often such a bound is wrong differs
from texts to texts and grows with their number, so it is measured on the index's own: questions are drawn from the
texts, their nearest passages found exactly, and the narrowest bound taken that finds as many as are wanted.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from scotfree import _native
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.pending import Numbers
from scotfree.rag.trouble import RagError

# Standard errors where it was never measured how many are needed.
DEVIATIONS: Final = 1.1
# What a new index is to find of exact search's passages, unless it is said otherwise.
RECALL: Final = 0.99
# Questions that are drawn: with ten passages each a recall of .99 is known to within .003 (one standard error).
QUESTIONS: Final = 128
COUNT: Final = 10
# Where exact values are made by embedding: the share is then known to within .006.
QUESTIONS_EMBEDDED: Final = 32
# Passages whose rows are read at once: in less than a microsecond each.
BATCH: Final = 16
# Bounds that are tried, in standard errors of an estimate.
_LEAST: Final = 0.5
_MOST: Final = 5.0
_STEP: Final = 0.1
_STEPS: Final = round((_MOST - _LEAST) / _STEP)
# With which hardly anything near is missed: of a thousand of the nearest fewer than one.
_WIDE: Final = 3.0
# What is drawn is a sample: of what may be missed so great a part is left free.
_FREE: Final = 0.3
# And where the widest bound finds no more than that, so great a part less is as good.
_BESIDE: Final = 0.1
# Two passages whose similarities differ by less are equally near: one text may stand in many documents.
SAME: Final = 1e-6
# A sentence of fewer words asks nothing; more of it is no question.
_WORDS_MIN: Final = 4
_WORDS_MAX: Final = 24
# Of a sentence so great a part of its words, and so many at least.
_PARTS: Final = 3
_PART_MIN: Final = 2

# The vectors of passages, in the order of their numbers.
Exactly = Callable[[Sequence[int]], Vectors]
# Gives a search for a vector exact values until it is over, and says of how many passages.
Complete = Callable[[_native.Search, Vectors], int]


@dataclass(frozen=True)
class Bound:
    """What a search's bound is, and what it was measured to find."""

    # The share of the nearest that was asked for, and that was found.
    target: float
    recall: float
    # Standard errors.
    deviations: float
    # When there were so many passages.
    passages: int
    # Of so many a search took exact values, on average.
    exact: float = 0.0

    @property
    def is_held(self) -> bool:
        """Whether as much is found as was asked for."""
        return self.recall >= self.target

    def written(self) -> bytes:
        """As an index keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, said: bytes) -> Bound:
        """From what `written` made; `ValueError` or `TypeError`: nothing of the kind."""
        found = cls(**json.loads(said))
        if not all(isinstance(value, int | float) and math.isfinite(value) for value in asdict(found).values()):
            raise ValueError("a number of it is none")
        return found


def checked(target: float) -> float:
    """A share that can be asked for; a `RagError` says which can."""
    if isinstance(target, float | int) and math.isfinite(target) and 0 < target < 1:
        return target
    raise RagError(
        f"find {target} of the nearest passages",
        "say a share above 0 and below 1, as 0.99; all of them only a comparison with every embedding finds",
    )


@dataclass(frozen=True)
class Sample:
    """Questions (rows of length one), and of each what is nearest to it, with its similarity."""

    questions: Vectors
    near: list[dict[int, float]]


@dataclass(frozen=True)
class Found:
    """What searches for a sample found of the nearest, and of how many passages they took exact values."""

    recall: float
    exact: float


def calibrated(snapshot: _native.Snapshot, sample: Sample, target: float, complete: Complete) -> Bound:
    """The narrowest bound with which searches find `target` of what is near to the sample's questions.

    Of what no bound finds, since rows are rounded, a wider one finds no more: it would only read more of them.
    """

    def tried(step: int) -> Found:
        return found(snapshot, sample, _deviations(step), complete)

    wanted = min(target + _FREE * (1 - target), tried(_STEPS).recall - _BESIDE * (1 - target))
    low, high = 0, _STEPS
    while low < high:
        middle = (low + high) // 2
        if tried(middle).recall >= wanted:
            high = middle
        else:
            low = middle + 1
    return _bound(snapshot, target, _deviations(low), tried(low))


def _deviations(step: int) -> float:
    return round(_LEAST + step * _STEP, 3)


def _bound(snapshot: _native.Snapshot, target: float, deviations: float, of: Found) -> Bound:
    return Bound(target, of.recall, deviations, snapshot.rows, round(of.exact, 1))


def found(snapshot: _native.Snapshot, sample: Sample, deviations: float, complete: Complete) -> Found:
    """What searches with this bound find."""
    shares, exact = [], []
    for question, near in zip(sample.questions, sample.near, strict=True):
        search = begun(snapshot, question, deviations)
        exact.append(complete(search, question))
        shares.append(share([number for number, _ in search.found()], near))
    return Found(float(np.mean(shares)), float(np.mean(exact))) if shares else Found(1.0, 0.0)


def begun(snapshot: _native.Snapshot, question: Vectors, deviations: float) -> _native.Search:
    """A search through all clusters that have codes."""
    return snapshot.search(
        lent(question), COUNT, snapshot.clusters, deviations, _native.PassageSet(), bare_probes=0
    )


def several(
    snapshot: _native.Snapshot, sample: Sample, targets: Sequence[float], complete: Complete
) -> list[Bound]:
    """The narrowest bound for each share of the nearest; of those that no bound finds none."""
    bounds: list[Bound] = []
    rest = sorted(targets)
    for deviations in map(_deviations, range(_STEPS + 1)):
        if not rest or deviations > _WIDE:
            break
        tried = found(snapshot, sample, deviations, complete)
        while rest and tried.recall >= rest[0]:
            bounds.append(_bound(snapshot, rest.pop(0), deviations, tried))
    return bounds


def widest(snapshot: _native.Snapshot, questions: Vectors, complete: Complete) -> Iterator[dict[int, float]]:
    """Of each question what is nearest, where not all can be compared: what a most careful search finds."""
    for question in questions:
        search = begun(snapshot, question, _WIDE)
        complete(search, question)
        yield dict(search.found())


def by_asking(exact: Exactly) -> Complete:
    """With the vectors of passages, in the order of their numbers."""

    def complete(search: _native.Search, question: Vectors) -> int:
        count = 0
        while wanted := search.ask(BATCH):
            count += len(wanted)
            search.give(list(zip(wanted, (exact(wanted) @ question).tolist(), strict=True)))
        return count

    return complete


def share(numbers: Sequence[int], near: dict[int, float]) -> float:
    """How much of the nearest these passages are; `near` are all that are as near as the tenth."""
    return min(sum(number in near for number in numbers), COUNT) / min(len(near), COUNT) if near else 1.0


def nearest(questions: Vectors, parts: Iterable[tuple[Numbers, Vectors]]) -> list[dict[int, float]]:
    """Of each question the passages that are as near as the tenth, by their similarities to it.

    The passages come some at a time, with a row for each.
    """
    best = np.full((len(questions), COUNT), -np.inf, np.float32)
    kept: list[list[tuple[Numbers, Vectors]]] = [[] for _ in questions]
    for numbers, vectors in parts:
        similarities = questions @ vectors.T
        best = -np.partition(np.concatenate([-best, -similarities], axis=1), COUNT - 1, axis=1)[:, :COUNT]
        least = best.min(axis=1) - SAME
        for own, row, bar in zip(kept, similarities, least, strict=True):
            places = np.flatnonzero(row >= bar)
            own.append((numbers[places], row[places]))
    found = []
    for own, bar in zip(kept, best.min(axis=1) - SAME, strict=True):
        pairs = ((int(number), float(value)) for part in own for number, value in zip(*part, strict=True))
        found.append({number: value for number, value in pairs if value >= bar})
    return found


def questions(texts: Sequence[str], chance: random.Random) -> list[str]:
    """As many questions out of texts: words that follow each other in one of them, and such of another.

    A sentence as it stands is nearer to its own passage than what people ask, and found with less care. A bound
    that finds .994 of what is near to sentences of WordNet's glosses finds .986 of what is near to examples of
    their words' use; of what is near to such questions and to the examples it finds as much.
    """
    parts = [_part(sentence(text, chance), chance) for text in texts]
    return [f"{one} {other}" for one, other in zip(parts, parts[1:] + parts[:1], strict=True)]


def _part(text: str, chance: random.Random) -> str:
    words = text.split()
    count = max(_PART_MIN, len(words) // _PARTS)
    start = chance.randrange(max(1, len(words) - count + 1))
    return " ".join(words[start : start + count])


def sentence(text: str, chance: random.Random) -> str:
    """A question out of a text: one of its sentences, or how it begins."""
    sentences = [sentence.split() for sentence in re.split(r"(?<=[.!?])\s+|\n{2,}", text)]
    long = [words for words in sentences if len(words) >= _WORDS_MIN]
    return " ".join((chance.choice(long) if long else text.split())[:_WORDS_MAX])
