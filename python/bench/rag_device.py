"""A small device in this process: what embedding and reading would take there is counted instead of waited for.

Quotas of processor time come in slices of 100 ms, of which single questions would tell little; and questions to an
index that embeds whole clusters take minutes. So passages' embeddings are looked up, and a letter costs what it
costs here, by how much more processor the model has here. What else a question takes is measured as it is: little.
"""

from __future__ import annotations

import time
import tomllib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scotfree.rag.embed.embedder import Embedder, Vectors

_FOLDER = Path(__file__).parents[2] / "lab" / "devices"


@dataclass
class Device:
    """Its rates, and what a question has taken of them."""

    letter_ns: float
    read_byte_ns: float
    access_ns: float
    # Of the question that is asked.
    embedding_ns: float = 0
    reading_ns: float = 0

    @classmethod
    def named(cls, name: str, letter_ns: float, threads: int) -> Device:
        """One of the lab's; `letter_ns` is what a letter takes here to be embedded on so many threads."""
        limits = tomllib.loads((_FOLDER / f"{name}.toml").read_text())["limits"]
        rate = float(limits["read_rate"].removesuffix("MB/s")) * 1e6
        return cls(letter_ns * threads / limits["cpus"], 1e9 / rate, 1e9 / limits["read_iops"])

    @property
    def spent_ns(self) -> float:
        """All of it."""
        return self.embedding_ns + self.reading_ns

    def begin(self) -> None:
        """Begins a question."""
        self.embedding_ns = self.reading_ns = 0

    def embed(self, letters: int) -> None:
        """Counts texts of so many letters."""
        self.embedding_ns += letters * self.letter_ns

    def read_ns(self, bytes_: int) -> float:
        """What one run of bytes takes to be read."""
        return self.access_ns + bytes_ * self.read_byte_ns

    def read(self, bytes_: int) -> None:
        """Counts one run of bytes."""
        self.reading_ns += self.read_ns(bytes_)


@dataclass
class Memory:
    """What of an index' embeddings is in the device's memory: what was used last, as with a file's pages.

    Nothing is, to begin with. It flatters who reads: a run that is not there is read in one piece.
    """

    bytes_: float
    # By their names, the one used last at the end.
    _runs: OrderedDict[int, int] = field(default_factory=OrderedDict)
    _used: int = 0

    def has(self, run: int, bytes_: int) -> bool:
        """Whether a run of bytes is there; from now on it is, unless all of memory is less.

        Who goes through more than has room finds nothing of it: at the end the beginning is gone.
        """
        is_there = self._runs.pop(run, None) is not None
        self._used += 0 if is_there else bytes_
        self._runs[run] = bytes_
        while self._used > self.bytes_:
            self._used -= self._runs.popitem(last=False)[1]
        return is_there


@dataclass
class Paced:
    """An embedder whose time is the device's: looking an embedding up counts for nothing."""

    known: Embedder
    device: Device
    name: str = field(init=False)
    digest: bytes = field(init=False)
    dimensions: int = field(init=False)
    tokens_max: int = field(init=False)
    # How often it was asked.
    calls: int = 0

    def __post_init__(self) -> None:
        """It is as what it knows."""
        known = self.known
        self.name, self.digest, self.dimensions = known.name, known.digest, known.dimensions
        self.tokens_max = known.tokens_max

    def count_tokens(self, text: str) -> int:
        """How many tokens a text is."""
        return self.known.count_tokens(text)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text, each of length one."""
        began = time.perf_counter_ns()
        found = self.known.embed(texts)
        self.calls += 1
        self.device.embed(sum(map(len, texts)))
        self.device.embedding_ns -= time.perf_counter_ns() - began
        return found
