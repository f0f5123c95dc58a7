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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.trouble import RagError

# What a new index is to find of exact search's passages, unless it is said otherwise.
RECALL: Final = 0.99
# Questions that are drawn: with ten passages each a recall of .99 is known to within .003 (one standard error).
QUESTIONS: Final = 128
COUNT: Final = 10
# Passages whose rows are read at once: in some microseconds each.
BATCH: Final = 64
# Bounds that are tried, in standard errors of an estimate.
_LEAST: Final = 0.5
_MOST: Final = 5.0
_STEP: Final = 0.1
# What is drawn is a sample: of what may be missed so great a part is left free.
_FREE: Final = 0.3
# Two passages whose similarities differ by less are equally near: one text may stand in many documents.
_SAME: Final = 1e-6
# A sentence of fewer words asks nothing; more of it is no question.
_WORDS_MIN: Final = 4
_WORDS_MAX: Final = 24

Numbers = np.ndarray[Any, np.dtype[np.uint32]]
# The vectors of passages, in the order of their numbers, as searches will have them.
Exact = Callable[[Sequence[int]], Vectors]


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

    @property
    def is_held(self) -> bool:
        """Whether as much is found as was asked for."""
        return self.recall >= self.target

    def written(self) -> bytes:
        """As an index keeps it."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, said: bytes) -> Bound:
        """From what `written` made."""
        return cls(**json.loads(said))


def checked(target: float) -> float:
    """A share that can be asked for; a `RagError` says which can."""
    if math.isfinite(target) and 0 < target < 1:
        return target
    raise RagError(
        f"find {target} of the nearest passages",
        "say a share above 0 and below 1, as 0.99; all of them only a comparison with every embedding finds",
    )


def calibrated(
    snapshot: _native.Snapshot,
    questions: Vectors,
    near: Sequence[dict[int, float]],
    target: float,
    exact: Exact,
) -> Bound:
    """The narrowest bound with which searches find `target` of what is near to questions (rows of length one)."""

    def recall(step: int) -> float:
        return found(snapshot, questions, near, _LEAST + step * _STEP, exact)

    wanted = target + _FREE * (1 - target)
    low, high = 0, round((_MOST - _LEAST) / _STEP)
    while low < high:
        middle = (low + high) // 2
        if recall(middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    return Bound(target, recall(low), round(_LEAST + low * _STEP, 3), len(snapshot.passages()))


def found(
    snapshot: _native.Snapshot,
    questions: Vectors,
    near: Sequence[dict[int, float]],
    deviations: float,
    exact: Exact,
) -> float:
    """The share of the nearest that searches with this bound find."""
    shares = [
        share(_found(snapshot, question, deviations, exact), own)
        for question, own in zip(questions, near, strict=True)
    ]
    return float(np.mean(shares)) if shares else 1.0


def _found(snapshot: _native.Snapshot, question: Vectors, deviations: float, exact: Exact) -> list[int]:
    search = snapshot.search(lent(question), COUNT, snapshot.clusters, deviations, set(), bare_probes=0)
    while wanted := search.ask(BATCH):
        search.give(list(zip(wanted, (exact(wanted) @ question).tolist(), strict=True)))
    return [number for number, _ in search.found()]


def share(numbers: Sequence[int], near: dict[int, float]) -> float:
    """How much of the nearest these passages are; `near` are all that are as near as the tenth."""
    return min(sum(number in near for number in numbers), COUNT) / min(len(near), COUNT) if near else 1.0


def nearest(numbers: Sequence[int] | Numbers, similarities: Vectors) -> dict[int, float]:
    """The passages that are as near to a question as the tenth, by their similarities to it."""
    if not len(numbers):
        return {}
    place = min(COUNT, len(numbers)) - 1
    least = float(-np.partition(-similarities, place)[place]) - _SAME
    return {int(numbers[at]): float(similarities[at]) for at in np.flatnonzero(similarities >= least).tolist()}


def sentence(text: str, chance: random.Random) -> str:
    """A question out of a text: one of its sentences, or how it begins."""
    sentences = [sentence.split() for sentence in re.split(r"(?<=[.!?])\s+|\n{2,}", text)]
    long = [words for words in sentences if len(words) >= _WORDS_MIN]
    return " ".join((chance.choice(long) if long else text.split())[:_WORDS_MAX])
