"""Questions to plan with, and what a search asks for each of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scotfree.rag.calibration import sentence
from scotfree.rag.embed.embedder import embed_questions
from scotfree.rag.index import Index
from scotfree.rag.lending import lent
from scotfree.rag.sampling import texts_drawn
from scotfree.rag.searching import bare_probes
from scotfree.rag.trouble import RagError

# Questions that are drawn, and of a file at most.
DRAWN: Final = 64
QUESTIONS_MAX: Final = 500
_SEED: Final = 1


@dataclass(frozen=True)
class Asked:
    """A question of the sample, and what its search wants exact values of, each time some."""

    question: str
    tokens: int
    rounds: list[list[int]]
    # What embedding them took, those aside that are kept.
    embedded_s: float
    # What it would want if all clusters had codes; of those that have none now, what was found.
    coded: list[list[int]]
    # The clusters that it would embed, if they had no codes.
    near: frozenset[int]


def drawn(index: Index, count: int = DRAWN) -> list[str]:
    """Questions out of the passages' own texts: of each of some passages, drawn evenly, one sentence."""
    chance = random.Random(_SEED)
    passages = [passage for cluster in index.clusters() for passage in cluster]
    found = [sentence(text, chance) for text in texts_drawn(index.passages, passages, count, chance)]
    chance.shuffle(found)
    return found


def read(path: Path) -> list[str]:
    """Questions of a file, one a line; a `RagError` says why there are none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RagError(f"read questions from {path}: {error}", "name a text file, one question a line") from None
    found = [line.strip() for line in lines if line.strip()]
    if not found:
        raise RagError(f"read questions from {path}: it has none", "write one a line, or leave the flag out")
    return found[:QUESTIONS_MAX]


def asked(index: Index, questions: Sequence[str], count: int) -> list[Asked]:
    """What searches for so many passages ask for; they are made, each as if it were the first."""
    clusters = index.clusters()
    bare = {passage for cluster in index.stored.placement.bare for passage in clusters[cluster]}
    return [_asked(index, question, count, bare) for question in questions]


def _asked(index: Index, question: str, count: int, bare: set[int]) -> Asked:
    index.cool()
    vector = embed_questions(index.embedder, [question])[0]
    answer = index.search(question, count, vector=vector)
    without = bare - {hit.number for hit in answer.hits}
    coded = [[number for number in numbers if number not in without] for numbers in answer.rounds]
    found = index.snapshot()
    assert found, "whoever plans has looked"
    near = found[1].along(lent(vector), bare_probes(found[1].clusters))
    tokens = min(index.embedder.count_tokens(question), index.embedder.tokens_max)
    embedded_s = answer.stages_ns.get("regenerate", 0) / 1e9
    return Asked(question, tokens, answer.rounds, embedded_s, [some for some in coded if some], frozenset(near))
