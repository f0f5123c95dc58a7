"""The first token after a question, and whether one question's retrieval may run beside another's prefill.

On a processor both want the same cores: what overlapping them gains is measured where each has threads for all
cores (beside) and for half of them (halves), and what it would gain if each had a processor of its own. The
language model has the shape of a small one and weights drawn by chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from bench import drawn_model, rag_collections
from bench.drawn_model import Shape
from bench.rag_collections import THREADS
from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
from scotfree.rag.evaluation.modes import Mode, build_ours
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.generate.answering import write_answer
from scotfree.rag.generate.local import LocalModel
from scotfree.rag.index import Index
from scotfree.rag.searching import Answer

# 30 layers of 576 numbers: 106 million weights that a token meets.
SHAPE: Final = Shape(width=576, layers=30, heads=9, key_heads=3, inner=1536, is_small=True)
# Each letter is a token: as many as some 6,000 letters of English are to other models.
LETTERS: Final = 1_500
COUNT: Final = 10
_WITH_EMBEDDER: Final = ("embed query", "regenerate")


@dataclass
class Told:
    """What questions took, one way of asking them."""

    first_token_ms: list[float] = field(default_factory=list)
    retrieval_ms: list[float] = field(default_factory=list)
    embedding_ms: list[float] = field(default_factory=list)
    prefill_ms: list[float] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)
    # Of each round: what all its questions took.
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def answered(self, answer: Answer, began: float) -> None:
        """Notes a question that has its first token now."""
        self.first_token_ms.append((time.perf_counter() - began) * 1e3)
        written, stages = answer.written, answer.stages_ns
        assert written, answer
        self.retrieval_ms.append(written.retrieval_ns / 1e6)
        self.embedding_ms.append(sum(stages.get(stage, 0) for stage in _WITH_EMBEDDER) / 1e6)
        self.prefill_ms.append(written.prefill_ns / 1e6)
        self.shown.append(written.shown)

    def numbers(self, name: str, questions: int) -> dict[str, float]:
        """Of a way by its name; a round has so many questions."""
        first = np.percentile(self.first_token_ms, (50, 95))
        found = {
            "first_token_p50_ms": first[0],
            "first_token_p95_ms": first[1],
            "retrieval_p50_ms": np.median(self.retrieval_ms),
            "embedding_p50_ms": np.median(self.embedding_ms),
            "prefill_p50_ms": np.median(self.prefill_ms),
            "passages_shown": sum(self.shown),
            "questions_per_s": questions / np.median(self.wall_s),
            "cpu_s_per_question": np.median(self.cpu_s) / questions,
        }
        return {f"{name}_{metric}": float(value) for metric, value in found.items()}


@dataclass(frozen=True)
class Parts:
    """What answers: an index and a language model, each with its threads."""

    index: Index
    model: LocalModel

    def retrieved(self, question: str) -> tuple[Answer, float]:
        """What is found, and when that began."""
        began = time.perf_counter()
        return self.index.search(question, COUNT), began

    def first_token(self, question: str, answer: Answer) -> None:
        """Waits for it."""
        for _ in write_answer(self.model, question, answer, letters_max=LETTERS, tokens_max=1):
            pass


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection. Ways to ask take turns, after a round that counts for nothing."""
    prepared = rag_collections.prepared(arm, settings["questions"])
    build_ours(Mode.OURS, prepared.base, prepared.collection.documents, prepared.known, lambda _: None)
    questions = list(prepared.collection.questions.values())
    told = {"alone": Told(), "beside": Told(), "halves": Told()}
    with _parts(prepared, THREADS) as whole, _parts(prepared, THREADS // 2) as half:
        ways: dict[str, Callable[[Told], None]] = {
            "alone": lambda to: _one_after_another(whole, questions, to),
            "beside": lambda to: _one_beside_another(whole, questions, to),
            "halves": lambda to: _one_beside_another(half, questions, to),
        }
        _one_after_another(whole, questions[:2], Told())
        _one_after_another(half, questions[:2], Told())
        for _ in range(settings["rounds"]):
            for name, way in ways.items():
                whole.index.cool()
                half.index.cool()
                _timed(way, told[name])
    found = {"passages": float(len(prepared.parts)), "questions": float(len(questions))}
    for name, of in told.items():
        found |= of.numbers(name, len(questions))
    return found | _gains(told)


@contextmanager
def _parts(prepared: Prepared, threads: int) -> Iterator[Parts]:
    file = prepared.base / "drawn.gguf"
    if not file.exists():
        part = file.with_suffix(".part")
        drawn_model.write(part, SHAPE)
        part.rename(file)
    with Index(Mode.OURS.folder(prepared.base), OnnxEmbedder(threads=threads)) as index:
        model = LocalModel(file, threads=threads)
        try:
            yield Parts(index, model)
        finally:
            model.close()


def _timed(way: Callable[[Told], None], told: Told) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    way(told)
    told.wall_s.append(time.perf_counter() - began)
    told.cpu_s.append(time.process_time() - cpu)


def _one_after_another(parts: Parts, questions: Sequence[str], told: Told) -> None:
    for question in questions:
        answer, began = parts.retrieved(question)
        parts.first_token(question, answer)
        told.answered(answer, began)


def _one_beside_another(parts: Parts, questions: Sequence[str], told: Told) -> None:
    """While the language model reads one question's passages, the next one's are looked for."""
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(parts.retrieved, questions[0])
        for place, question in enumerate(questions):
            answer, began = coming.result()
            if place + 1 < len(questions):
                coming = ahead.submit(parts.retrieved, questions[place + 1])
            parts.first_token(question, answer)
            told.answered(answer, began)


def _gains(told: dict[str, Told]) -> dict[str, float]:
    """What overlapping gains, and what it would at most."""
    alone = told["alone"]
    retrieval, prefill = np.mean(alone.retrieval_ms), np.mean(alone.prefill_ms)
    rest = retrieval - np.mean(alone.embedding_ms)
    return {
        "beside_times": float(np.median(alone.wall_s) / np.median(told["beside"].wall_s)),
        "halves_times": float(np.median(alone.wall_s) / np.median(told["halves"].wall_s)),
        # Two processors of this kind, one for each.
        "overlap_times_at_most": float((retrieval + prefill) / max(retrieval, prefill)),
        # Within a question: were all of its search hidden behind embedding.
        "search_percent": float(100 * rest / (retrieval + prefill)),
        "retrieval_percent": float(100 * retrieval / (retrieval + prefill)),
    }
