"""What a first build of an index takes in memory, beside what the process had before: an embedder with no model.

Its embeddings are drawn around some hundred centroids, each from a text's number, so that as many texts as are
wanted are embedded in seconds. Documents come one at a time, as a reader of files hands them on.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag import Document, Index
from scotfree.rag.embed.embedder import Vectors

_DIMENSIONS: Final = 384
_CENTROIDS: Final = 500
_APART: Final = 0.9
_STATUS: Final = Path("/proc/self/status")
# Writing this there makes the peak begin anew.
_ANEW: Final = (Path("/proc/self/clear_refs"), "5")
_KIB: Final = 1024


class Numbered:
    """An embedder of texts that begin with a number; of others one is made."""

    name, dimensions, tokens_max = "numbered", _DIMENSIONS, 256
    digest = hashlib.sha256(name.encode()).digest()

    def __init__(self) -> None:
        self._around = np.random.default_rng(0).standard_normal((_CENTROIDS, _DIMENSIONS)).astype(np.float32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        return np.array([self._vector(_number(text)) for text in texts], np.float32)

    def count_tokens(self, text: str) -> int:
        """About as many as there are."""
        return len(text) // 4 + 1

    def _vector(self, number: int) -> Vectors:
        apart = np.random.default_rng(number).standard_normal(_DIMENSIONS, dtype=np.float32)
        vector: Vectors = self._around[number % _CENTROIDS] + _APART * apart
        vector /= np.linalg.norm(vector)
        return vector


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """One build of so many passages; `arm` is what it keeps."""
    if arm not in ("rows", "codes"):
        raise ValueError(f"arm {arm} is none of rows, codes")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "index"
        with Index(folder, Numbered(), keep="rows" if arm == "rows" else "codes") as index:
            before = _kib("VmRSS")
            _ANEW[0].write_text(_ANEW[1])
            began = time.perf_counter()
            index.update(_documents(settings["passages"]))
            index.compact()
            took_s = time.perf_counter() - began
            peak = _kib("VmHWM")
            found = index.snapshot()
        assert found, "it was built"
        sizes = {path.name.split("-")[0]: path.stat().st_size for path in folder.glob("*.scot")}
    return {
        "passages": found[1].rows,
        "peak_mib": (peak - before) / _KIB,
        "build_s": took_s,
        "bytes_a_passage": sum(sizes.values()) / found[1].rows,
    }


def _documents(count: int) -> Iterator[Document]:
    for number in range(count):
        yield Document(str(number), f"{number} is what this passage is about, and {number * 7}", is_whole=True)


def _number(text: str) -> int:
    begins = re.match(r"\d+", text)
    if begins:
        return int(begins.group())
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "little")


def _kib(name: str) -> int:
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1])
