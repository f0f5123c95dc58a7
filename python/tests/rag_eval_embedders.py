"""Embedders of measured processes: some of them end their process."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from bench.words import Words
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.trouble import RagError


class Killed(Words):
    def embed(self, texts: Sequence[str]) -> Vectors:
        os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts)


class Faulty(Words):
    def embed(self, texts: Sequence[str]) -> Vectors:
        raise ZeroDivisionError("a fault of its own")


class Refusing(Words):
    def embed(self, texts: Sequence[str]) -> Vectors:
        raise RagError("embed: the endpoint is away", "start it")
