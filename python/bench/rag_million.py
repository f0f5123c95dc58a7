"""A million passages in a small memory: ours, and all embeddings in memory or in a mapped file.

They are made of Debian's documentation (see `rag_spread`). The arm `build` runs first, and without a limit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench import rag_spread
from bench.rag_collections import DEBIAN, THREADS, kept, prepared
from bench.rag_spread import Spread, blocks, numbered
from scotfree.rag import Document, Index, OnnxEmbedder
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.prepared import Prepared

_APART: Final = "apart.npy"
_FLAT: Final = "flat.npy"
_QUESTIONS: Final = "questions.json"
_INDEX: Final = "index"
# Written last.
_NEAREST: Final = "nearest.npy"


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is what is done."""
    folder = kept() / f"million-{settings['passages']}"
    if arm == "build":
        return _build(folder, settings["passages"], settings["questions"])
    search = {"ours": _ours, "flat": _flat, "flat-mapped": _mapped}[arm]
    return _asked(folder, settings["questions"], search(folder))


def _build(folder: Path, count: int, questions: int) -> dict[str, float]:
    if not (folder / _NEAREST).exists():
        folder.mkdir(parents=True, exist_ok=True)
        of = prepared(DEBIAN, questions)
        rag_spread.learn(np.asarray(of.vectors), folder / _APART)
        nearest = _write_flat(folder, of, count)
        _write_index(folder, of, count)
        (folder / _QUESTIONS).write_text(json.dumps(list(of.collection.questions.values())))
        np.save(folder / _NEAREST, nearest)
    (codes,) = (folder / _INDEX).glob("codes-*.scot")
    flat = (folder / _FLAT).stat().st_size
    return {"passages": count, "flat_gb": flat / 1e9, "size_percent": 100 * codes.stat().st_size / flat}


def _write_flat(folder: Path, of: Prepared, count: int) -> Any:
    """All embeddings; returns of each question the numbers of its nearest passages."""
    shape = (count, of.vectors.shape[1])
    flat = np.lib.format.open_memmap(folder / _FLAT, mode="w+", dtype=np.float32, shape=shape)
    best = np.full((len(of.questions), COUNT), -2, np.float32)
    nearest = np.full((len(of.questions), COUNT), -1)
    for numbers, vectors in blocks(of.vectors, count, folder / _APART):
        flat[numbers.start : numbers.stop] = vectors
        similar = np.hstack([best, of.questions @ vectors.T])
        rows = np.argsort(-similar, axis=1, kind="stable")[:, :COUNT]
        known = np.hstack([nearest, np.tile(np.array(numbers), (len(nearest), 1))])
        best, nearest = (np.take_along_axis(each, rows, axis=1) for each in (similar, known))
    flat.flush()
    return nearest


class _Made:
    """An embedder that knows what was made."""

    def __init__(self, of: Spread, flat: Any) -> None:
        self.name, self.digest, self.dimensions, self.tokens_max = of.name, of.digest, of.dimensions, of.tokens_max
        self.count_tokens = of.count_tokens
        self._of, self._flat = of, flat

    def embed(self, texts: Any) -> Vectors:
        return np.array(self._flat[[rag_spread.number_of(text) for text in texts]])

    def embed_questions(self, questions: Any) -> Vectors:
        """As texts without a number, also of what was drawn from passages."""
        return self._of.embed([rag_spread.unnumbered(text) for text in questions])


def _write_index(folder: Path, of: Prepared, count: int) -> None:
    def documents() -> Iterator[Document]:
        for number in range(count):
            text = of.parts[number % len(of.parts)].embedded
            yield Document(str(number), numbered(number, text), is_whole=True)

    made = _Made(Spread(of.model, folder / _APART), np.load(folder / _FLAT, mmap_mode="r"))
    Index.build(folder / _INDEX, documents(), made, keep="codes").close()


# What is found for a question: numbers of passages, and how many were embedded for it.
Search = Callable[[str], tuple[list[int], int]]


def _ours(folder: Path) -> Search:
    index = Index(folder / _INDEX, _model(folder), cache_bytes=0, keep="codes")

    def search(question: str) -> tuple[list[int], int]:
        answer = index.search(question, COUNT)
        return [int(hit.document) for hit in answer.hits], answer.regenerated

    return search


def _flat(folder: Path) -> Search:
    return _all(folder, np.load(folder / _FLAT))


def _mapped(folder: Path) -> Search:
    return _all(folder, np.load(folder / _FLAT, mmap_mode="r"))


def _all(folder: Path, flat: Vectors) -> Search:
    model = _model(folder)

    def search(question: str) -> tuple[list[int], int]:
        return np.argsort(-(flat @ model.embed([question])[0]))[:COUNT].tolist(), 0

    return search


def _model(folder: Path) -> Spread:
    return Spread(OnnxEmbedder(threads=THREADS), folder / _APART)


def _asked(folder: Path, count: int, search: Search) -> dict[str, float]:
    questions = json.loads((folder / _QUESTIONS).read_text())[:count]
    nearest = np.load(folder / _NEAREST)
    times, shares, embedded = [], [], []
    for question, wanted in zip(questions, nearest, strict=False):
        began = time.perf_counter_ns()
        found, made = search(question)
        times.append((time.perf_counter_ns() - began) / 1e6)
        shares.append(len(set(found) & set(wanted.tolist())) / COUNT)
        embedded.append(made)
    return {
        "questions": len(times),
        "p50_ms": float(np.median(times)),
        "p95_ms": float(np.quantile(times, 0.95)),
        "recall": float(np.mean(shares)),
        "regenerated": float(np.mean(embedded)),
    }
