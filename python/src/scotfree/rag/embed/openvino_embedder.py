"""Embeddings by OpenVINO, on the processor: the graph that ONNX Runtime gets, and the same bytes of its weights.

Where the processor multiplies bf16 numbers, they are used, and an embedding's cosine to that of single precision
is above 0.999; elsewhere above 0.999999. So the vectors count as the same model's, and one index serves both.
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from scotfree.rag.embed.bert_embedder import BertEmbedder
from scotfree.rag.embed.bert_folder import BertFolder, refused
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.embed.sessions import Numbers
from scotfree.rag.embed.weights import SINGLE, numbers, tensors

Precision = Literal["f32", "bf16"]
_DEVICE: Final = "CPU"
# With it `import openvino` tells its maker over the network that it was imported.
_TELLING: Final = "openvino_telemetry"


class OpenVinoEmbedder(BertEmbedder):
    """A BERT encoder; loaded once, and from then on safe to be used by several threads, one at a time."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        threads: int = 0,
        precision: Precision | None = None,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> None:
        """As `OnnxEmbedder`; `precision` is the best that the processor has, unless it is said."""
        model = BertFolder.read(folder)
        prompts = model.prompts.replaced(query_prompt, passage_prompt)
        super().__init__(model, f"openvino:{model.name}", prompts)
        core = process_core()
        self.precision: Precision = precision or _best(core)
        self._compiled = _compiled(core, model, {"INFERENCE_NUM_THREADS": threads, **_hints(self.precision)})
        self._request, self._lock = self._compiled.create_infer_request(), threading.Lock()

    @property
    def device(self) -> str:
        """Where it runs: `CPU`."""
        return _DEVICE

    def _run(self, ids: Numbers, mask: Numbers) -> Vectors:
        # A request has one place for its result.
        with self._lock:
            found: Vectors = self._request.infer({"input_ids": ids, "attention_mask": mask})[0].copy()
        return found


def imported() -> Any:
    """The library, silent: what it does is nobody else's business."""
    if "openvino" in sys.modules or _TELLING in sys.modules:
        return importlib.import_module("openvino")
    # What is None here cannot be imported; the library then does without.
    sys.modules[_TELLING] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("openvino")
    finally:
        del sys.modules[_TELLING]


# So that of two threads that ask first at the same time none makes a second one, which would go.
_MAKING: Final = threading.Lock()


def process_core() -> Any:
    """The library's device, once for all of the process and never given back.

    It has the thread that makes it handle signals on a stack of its own. When one of several goes, that stack may
    stay the thread's although it is gone, and the next signal ends the process, whoever handles it.
    """
    with _MAKING:
        return _core()


@functools.cache
def _core() -> Any:
    return imported().Core()


def _best(core: Any) -> Precision:
    return "bf16" if "BF16" in core.get_property(_DEVICE, "OPTIMIZATION_CAPABILITIES") else "f32"


def _hints(precision: Precision) -> dict[str, str]:
    return {"INFERENCE_PRECISION_HINT": precision, "PERFORMANCE_HINT": "LATENCY"}


def _compiled(core: Any, model: BertFolder, settings: dict[str, Any]) -> Any:
    shape = model.own()
    try:
        graph = core.read_model(build(model.weights, shape, model.pooling, are_weights_inputs=True))
        _fill_in(graph, model.weights)
        return core.compile_model(graph, _DEVICE, settings)
    except Exception as error:
        # As with ONNX Runtime.
        raise refused(model.name, error) from error


def _fill_in(graph: Any, weights: Path) -> None:
    """Puts constants in the place of the inputs that weights are: the file's own bytes, mapped.

    The library reads no weights that lie outside the folder of a graph, and packages' folders are not ours to
    write into.
    """
    constant = importlib.import_module("openvino.op").Constant
    # Private: the library asks for memory that could be written to, and writes none.
    mapped, known = np.memmap(weights, np.uint8, "c"), tensors(weights)
    for parameter in graph.get_parameters():
        if tensor := known.get(parameter.get_friendly_name()):
            if tensor.kind == SINGLE:
                own = mapped[tensor.start : tensor.start + tensor.length].view(np.float32)
                made = constant(np.asarray(own).reshape(tensor.shape), shared_memory=True)
            else:
                made = constant(numbers(weights, tensor))
            parameter.output(0).replace(made.output(0))
            graph.remove_parameter(parameter)
