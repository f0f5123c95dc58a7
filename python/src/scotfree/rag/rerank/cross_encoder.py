"""A cross-encoder of a folder: it reads a question and a passage as one text, and gives the pair a score.

That is dearer than comparing two embeddings, since nothing of it can be made before the question is known, and
nearer to what is meant: so it puts those in order that a search found.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag.embed.bert_embedder import batches, filled, tokenizer
from scotfree.rag.embed.bert_folder import WEIGHTS, refused, shape_or_ready
from scotfree.rag.embed.bert_graph import build_scorer
from scotfree.rag.embed.embedder import Device
from scotfree.rag.embed.sessions import REFUSALS, Ready, opened
from scotfree.rag.embed.shapes import SUPPORTED
from scotfree.rag.rerank.ranked import Ranked
from scotfree.rag.searching import Hit
from scotfree.rag.trouble import RagError

# Of a graph: ours, and what exporters call theirs.
_OUTPUTS: Final = ("score", "logits")
# A score for each pair, perhaps in a row of its own.
_RANKS: Final = (1, 2)
# Where nothing says how much it reads.
_TOKENS_MAX: Final = 512
_ADVICE: Final = (
    f"name a folder with the config.json, {WEIGHTS} and tokenizer.json of a cross-encoder ({SUPPORTED}) that "
    "gives one score, or with its model.onnx and tokenizer.json"
)


class CrossEncoder:
    """A cross-encoder; loaded once, and from then on safe to be used by several threads."""

    def __init__(self, folder: Path, *, threads: int = 0, device: Device = "auto") -> None:
        """`folder` is as sentence-transformers or transformers lay it out; `threads` as for `OnnxEmbedder`.

        A `RagError` says what of the folder or the device cannot be had.
        """
        path = Path(folder).expanduser().resolve()
        self.name = str(path)
        try:
            shape, ready = shape_or_ready(path)
            config = _said(path / "config.json")
            most = shape.tokens_max if shape else int(config.get("max_position_embeddings", _TOKENS_MAX))
            self.tokens_max = min(most, _told(path) or most)
            self._filler = int(config.get("pad_token_id") or 0)
            graph = build_scorer(path / WEIGHTS, shape) if shape else ready
            assert graph, "either of both is there"
            self._graph = Ready(opened(graph, path, threads=threads, device=device), _OUTPUTS, _RANKS)
            self._tokenizer = tokenizer(path)
            # Of both as much as there is room for: the longer one is cut first.
            self._tokenizer.enable_truncation(self.tokens_max, strategy="longest_first")
        except RagError:
            raise
        except Exception as error:
            # As of an embedder: the runtime's errors are of many classes.
            raise self._refused(error) from error

    def scores(self, question: str, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """How well each text answers a question: more is better."""
        pairs = self._tokenizer.encode_batch([(question, text) for text in texts])
        found = np.empty(len(pairs), np.float32)
        for places in batches([len(pair.ids) for pair in pairs]):
            found[places] = self._run([pairs[place] for place in places])
        if not np.isfinite(found).all():
            raise self._refused(ValueError("a score of it is no number"))
        return found

    def rerank(self, question: str, hits: Sequence[Hit], count: int) -> list[Ranked]:
        """The `count` best of what was found, the best first; of equals that first which was found first."""
        scores = self.scores(question, [hit.text for hit in hits])
        order = np.argsort(-scores, kind="stable")[:count]
        return [Ranked(**vars(hits[place]) | {"score": float(scores[place])}) for place in order.tolist()]

    def _run(self, pairs: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.float32]]:
        ids, mask = filled([pair.ids for pair in pairs], self._filler)
        kinds, _ = filled([pair.type_ids for pair in pairs], 0)
        try:
            made = self._graph.run(ids, mask, kinds)
        except REFUSALS as error:
            raise self._refused(error) from error
        if made.size != len(pairs):
            problem = f"it gives a text {made.size // len(pairs)} scores, not one: it tells classes apart"
            raise self._refused(ValueError(problem))
        return made.reshape(-1)

    def _refused(self, error: Exception) -> RagError:
        return refused(self.name, error, "rerank", _ADVICE)


def _told(path: Path) -> int | None:
    """How many tokens a pair may have, if its tokenizer says: some say a number beyond all sense."""
    said = _said(path / "tokenizer_config.json").get("model_max_length")
    return int(said) if isinstance(said, int | float) and 0 < said < 1 << 31 else None


def _said(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_bytes()) if path.exists() else {}
    if not isinstance(found, dict):
        raise ValueError(f"{path}: it is no object")
    return found
