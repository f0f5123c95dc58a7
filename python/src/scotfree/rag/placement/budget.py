"""What an index may take."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass

from scotfree.numbers import duration_ns, size_bytes
from scotfree.rag.trouble import RagError


@dataclass(frozen=True)
class Budget:
    """At most so much; what is not said has no bound."""

    # Of a process that searches: model and runtime, codes, caches, exact values. As "400MB".
    memory: str | None = None
    # Of codes and exact values on the disk, texts aside: as "12MB", or "4%" of the embeddings as four-byte floats.
    storage: str | None = None
    # Of 95 searches in 100, each as if it were the first: as "250ms".
    latency: str | None = None

    def __post_init__(self) -> None:
        """A `RagError` says which of them is none."""
        self.memory_bytes()
        self.storage_bytes(1)
        self.latency_s()

    def memory_bytes(self) -> float:
        """As a number, perhaps infinite."""
        return _read("memory", self.memory, size_bytes)

    def storage_bytes(self, flat_bytes: int) -> float:
        """As a number, perhaps infinite; `flat_bytes` are those of the embeddings as floats of four bytes."""

        def read(text: str) -> float:
            share = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,9})?) ?%", text)
            return float(share[1]) / 100 * flat_bytes if share else size_bytes(text)

        return _read("storage", self.storage, read)

    def latency_s(self) -> float:
        """In seconds, perhaps infinite."""
        return _read("latency", self.latency, lambda text: duration_ns(text) / 1e9)


def _read(what: str, text: str | None, read: Callable[[str], float]) -> float:
    if text is None:
        return math.inf
    try:
        value = read(text)
    except ArgumentTypeError as error:
        wrong, _, advice = str(error).rpartition("; ")
        more = ", or 4%" if what == "storage" else ""
        raise RagError(f"a budget of {what}: {wrong}", f"{advice}{more}") from None
    if value <= 0:
        raise RagError(f"a budget of {what}: {text} is nothing", "give it more, or leave it out")
    return value
