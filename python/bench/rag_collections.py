"""Collections to measure retrieval on: judged ones that are there, Debian's documentation, WordNet's glosses.

Embeddings are made once and kept in the folder SCOT_BENCH_KEPT, if it is set, else in that of the run. Judged
collections in BEIR's layout lie in the folder SCOT_BENCH_COLLECTIONS, a folder each.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import debian_corpus, glosses_corpus
from scotfree.rag.embed.onnx_embedder import OnnxEmbedder
from scotfree.rag.evaluation import beir
from scotfree.rag.evaluation.beir import Collection
from scotfree.rag.evaluation.prepared import Prepared, prepare
from scotfree.rag.evaluation.progress import Shown

# Cores that are measured on.
THREADS = 2
DEBIAN = "debian"
GLOSSES = "glosses"
_JUDGED = "SCOT_BENCH_COLLECTIONS"


def prepared(name: str, questions: int) -> Prepared:
    """A collection by its name, with so many questions at most: `debian`, `glosses`, or one that is judged."""
    found = {DEBIAN: _debian, GLOSSES: _glosses}.get(name, lambda: _judged(name))()
    return prepare(found.first(questions), kept() / name, OnnxEmbedder(threads=THREADS), Shown())


def _debian() -> Collection:
    """Some 25,000 passages."""
    return debian_corpus.collection(debian_corpus.MIDDLE, kept() / "packages")


def _glosses() -> Collection:
    """117,659 passages."""
    return glosses_corpus.collection(kept() / "packages")


def kept() -> Path:
    """Where what takes long to make is kept."""
    folder = os.environ.get("SCOT_BENCH_KEPT") or os.environ.get("SCOT_BENCH_FOLDER") or tempfile.gettempdir()
    return Path(folder)


def _judged(name: str) -> Collection:
    folder = os.environ.get(_JUDGED)
    if not folder:
        raise SystemExit(f"measure {name}: say where judged collections lie, in BEIR's layout, with {_JUDGED}")
    return beir.read(Path(folder) / name)


def fewest(most: int, is_enough: Callable[[int], bool]) -> int:
    """The least number up to `most` that is enough, where whatever is greater than one that is, is, too."""
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle + 1, high)
    return low
