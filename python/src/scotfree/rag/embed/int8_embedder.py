"""Embeddings in whole numbers of 8 bits, which x86-64 with VNNI multiplies faster; others are untried.

Weights have a scale for each column; what they are multiplied with has one for all of it, found as it comes. So
that a text's vector does not depend on what is embedded beside it, each text is run alone.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from scotfree.cache_folder import cache_folder, write_whole
from scotfree.rag.embed.bert_folder import BertFolder
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.embedder import DEFAULT
from scotfree.rag.embed.onnx_embedder import OnnxEmbedder

# Of how weights are rounded; other rules are other vectors.
_RULE: Final = b"int8 1"
# Behind a graph that is kept stands what it is checked by.
_CHECK_BYTES: Final = 32


class Int8Embedder(OnnxEmbedder):
    """An encoder whose products are of whole numbers; its vectors are others than the exact model's."""

    _is_one_by_one = True

    @staticmethod
    def _named(model: BertFolder, folder: Path | None) -> str:
        return f"int8:{DEFAULT if folder is None else model.name}"

    @staticmethod
    def _digest_of(model: BertFolder) -> bytes:
        return hashlib.sha256(_RULE + model.digest).digest()

    def _graph(self, model: BertFolder) -> bytes | Path:
        """Rounded once: to read all weights takes longer than to open what came of it."""
        shape, folder = model.own(), cache_folder("int8")
        path = folder and folder / f"{self._digest_of(model).hex()}.onnx"
        if path and (kept := _kept(path)):
            return kept
        made = build(model.weights, shape, model.pooling, is_whole=True)
        if path:
            write_whole(path, made + hashlib.sha256(made).digest())
        return made


def _kept(path: Path) -> bytes | None:
    """What was made before, if it is whole."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    graph, check = data[:-_CHECK_BYTES], data[-_CHECK_BYTES:]
    return graph if hashlib.sha256(graph).digest() == check else None
