"""A BERT encoder as an ONNX graph over the weights of its safetensors file, which stay where they are.

The embedding is the mean of the last layer's states over the text's tokens, or the state of its first token,
scaled to length one (Reimers and Gurevych, EMNLP 2019, section 3).
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Of ONNX: the first that has LayerNormalization and reduces over axes that are inputs.
_OPSET: Final = 18
_IR_VERSION: Final = 9
# A header longer than that is none.
_HEADER_MAX: Final = 100_000_000
# Added to what a token shall not look at.
_HIDDEN: Final = -1e4
_FLOAT_BYTES: Final = 4
# How a text's vector is made of its tokens'.
MEAN: Final = "mean"
FIRST: Final = "cls"


@dataclass(frozen=True)
class Shape:
    """Of an encoder, as its config.json says."""

    layers: int
    heads: int
    width: int
    epsilon: float

    @classmethod
    def read(cls, path: Path) -> Shape:
        """Reads it; a `ValueError` names what is not supported."""
        said = json.loads(path.read_bytes())
        if said.get("hidden_act") != "gelu" or said.get("model_type") != "bert":
            raise ValueError(
                f"{path}: it is a {said.get('model_type')} with {said.get('hidden_act')}, no BERT with gelu"
            )
        if said.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"{path}: its places are {said['position_embedding_type']}, not absolute")
        layers, heads, width = (
            int(said[name]) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
        )
        return cls(layers, heads, width, float(said["layer_norm_eps"]))


def build(weights: Path, shape: Shape, pooling: str = MEAN, *, are_weights_inputs: bool = False) -> bytes:
    """The graph: `input_ids`, `attention_mask` (batch x tokens, int64) to `embedding` (batch x width, float).

    It names where in the file each weight lies; `are_weights_inputs`: they are inputs instead, by the names that
    `tensors` knows, for a runtime that reads no file beside the graph. A `ValueError` says what is wrong.
    """
    graph = _Graph(tensors(weights), weights.name)
    pooled = _pooled(graph, _layers(graph, shape), pooling)
    inputs = [_value(name, TensorProto.INT64, ["batch", "tokens"]) for name in ("input_ids", "attention_mask")]
    if are_weights_inputs:
        inputs += [_value(name, TensorProto.FLOAT, tensor.shape) for name, tensor in graph.weights.items()]
    else:
        graph.initializers += [_external(name, tensor, weights.name) for name, tensor in graph.weights.items()]
    made = helper.make_graph(
        graph.nodes,
        "bert",
        inputs,
        [_value(pooled, TensorProto.FLOAT, ["batch", shape.width])],
        graph.initializers,
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION, producer_name="scotfree"
    )
    return bytes(model.SerializeToString())


def _value(name: str, of: int, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, of, shape)


def _external(name: str, tensor: Tensor, file: str) -> Any:
    proto = onnx.TensorProto(
        name=name, data_type=TensorProto.FLOAT, dims=tensor.shape, data_location=TensorProto.EXTERNAL
    )
    for key, value in (("location", file), ("offset", tensor.start), ("length", tensor.length)):
        proto.external_data.add(key=key, value=str(value))
    return proto


@dataclass(frozen=True)
class Tensor:
    """Where a weight lies in its file, in bytes; its numbers are of 4 bytes."""

    shape: list[int]
    start: int
    length: int


def tensors(path: Path) -> dict[str, Tensor]:
    """Where the weights lie in a safetensors file; a `ValueError` says why it is none."""
    size, said = _header(path)
    found = {}
    for name, entry in said.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "F32":
            # What is no weight, such as the numbers of places, is not asked for.
            continue
        start, end = entry["data_offsets"]
        found[name] = Tensor(entry["shape"], 8 + size + start, end - start)
        if end - start != _FLOAT_BYTES * math.prod(entry["shape"]) or 8 + size + end > path.stat().st_size:
            raise ValueError(f"{path}: it is cut off, or damaged, at {name}")
    return found


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Its length in bytes, without that of the length itself, and what it says."""
    with path.open("rb") as file, suppress(ValueError):
        size = int.from_bytes(file.read(8), "little")
        said = json.loads(file.read(size)) if size <= _HEADER_MAX else None
        if isinstance(said, dict):
            return size, said
    raise ValueError(f"{path}: it is no safetensors file")


class _Graph:
    """Nodes one after the other, each named by what it makes."""

    def __init__(self, tensors: dict[str, Tensor], file: str) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        # Those of the file's that were asked for.
        self.weights: dict[str, Tensor] = {}
        self._tensors = tensors
        self._file = file

    def node(self, kind: str, *inputs: str, name: str = "", count: int = 1, **attributes: Any) -> str:
        """Adds one; returns its (first) output."""
        first = name or f"{kind}_{len(self.nodes)}"
        outputs = [first, *(f"{first}_{place}" for place in range(1, count))]
        self.nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return first

    def constant(self, value: Any) -> str:
        """A small one, written into the graph."""
        name = f"constant_{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str) -> str:
        """One of the file's; with the prefix that some files have."""
        known = next((full for full in (name, f"bert.{name}") if full in self._tensors), None)
        if known is None:
            raise ValueError(f"{self._file}: it has no weight {name}")
        self.weights[known] = self._tensors[known]
        return known

    def linear(self, rows: str, name: str) -> str:
        """Rows through a layer: its weights lie transposed."""
        return self.node("Gemm", rows, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"), transB=1)

    def norm(self, state: str, name: str, epsilon: float) -> str:
        """Scaled to mean 0 and variance 1, then as the weights say."""
        weights = [self.weight(f"{name}.{part}") for part in ("weight", "bias")]
        return self.node("LayerNormalization", state, *weights, axis=-1, epsilon=epsilon)


def _layers(graph: _Graph, shape: Shape) -> str:
    """The last layer's states: batch x tokens x width."""
    sizes = graph.node("Shape", "input_ids")
    tokens = graph.node("Gather", sizes, graph.constant([1]))
    # Batch x tokens x heads x width of a head.
    parted = graph.node(
        "Concat", sizes, graph.constant([shape.heads, shape.width // shape.heads]), axis=0, name="parted"
    )
    whole = graph.node("Concat", sizes, graph.constant([shape.width]), axis=0, name="whole")
    hidden = _hidden(graph)
    state = graph.node("Reshape", _embedded(graph, shape, tokens), graph.constant([-1, shape.width]))
    for layer in range(shape.layers):
        state = _layer(graph, shape, f"encoder.layer.{layer}", state, (parted, hidden))
    return graph.node("Reshape", state, whole)


def _embedded(graph: _Graph, shape: Shape, tokens: str) -> str:
    """Word, place and kind: all texts are of the first kind."""
    words = graph.node("Gather", graph.weight("embeddings.word_embeddings.weight"), "input_ids")
    places = graph.node(
        "Slice", graph.weight("embeddings.position_embeddings.weight"), graph.constant([0]), tokens
    )
    kind = graph.node("Gather", graph.weight("embeddings.token_type_embeddings.weight"), graph.constant(0))
    placed = graph.node("Add", words, graph.node("Add", places, kind))
    return graph.norm(placed, "embeddings.LayerNorm", shape.epsilon)


def _hidden(graph: _Graph) -> str:
    """What is added to the scores: nothing for the text's tokens, much below it for those that fill up."""
    mask = graph.node("Cast", "attention_mask", to=TensorProto.FLOAT)
    missing = graph.node("Sub", graph.constant(np.float32(1)), mask)
    scaled = graph.node("Mul", missing, graph.constant(np.float32(_HIDDEN)))
    return graph.node("Unsqueeze", scaled, graph.constant([1, 2]))


def _layer(graph: _Graph, shape: Shape, name: str, state: str, around: tuple[str, str]) -> str:
    mixed = _attention(graph, shape, f"{name}.attention.self", state, around)
    dense = graph.linear(mixed, f"{name}.attention.output.dense")
    state = graph.norm(graph.node("Add", dense, state), f"{name}.attention.output.LayerNorm", shape.epsilon)
    inner = _gelu(graph, graph.linear(state, f"{name}.intermediate.dense"))
    outer = graph.linear(inner, f"{name}.output.dense")
    return graph.norm(graph.node("Add", outer, state), f"{name}.output.LayerNorm", shape.epsilon)


def _attention(graph: _Graph, shape: Shape, name: str, state: str, around: tuple[str, str]) -> str:
    """Every token looks at all: rows x width, as its input."""
    parted, hidden = around

    def heads(part: str, order: list[int]) -> str:
        split = graph.node("Reshape", graph.linear(state, f"{name}.{part}"), parted)
        return graph.node("Transpose", split, perm=order)

    scores = graph.node("MatMul", heads("query", [0, 2, 1, 3]), heads("key", [0, 2, 3, 1]))
    scale = graph.constant(np.float32((shape.width // shape.heads) ** -0.5))
    seen = graph.node("Add", graph.node("Mul", scores, scale), hidden)
    shares = graph.node("Softmax", seen, axis=-1)
    mixed = graph.node("MatMul", shares, heads("value", [0, 2, 1, 3]))
    together = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.node("Reshape", together, graph.constant([-1, shape.width]))


def _gelu(graph: _Graph, value: str) -> str:
    """x times the normal distribution's share below x."""
    error = graph.node("Erf", graph.node("Div", value, graph.constant(np.float32(np.sqrt(2)))))
    share = graph.node("Add", error, graph.constant(np.float32(1)))
    return graph.node("Mul", graph.node("Mul", value, share), graph.constant(np.float32(0.5)))


def _pooled(graph: _Graph, state: str, pooling: str) -> str:
    total = _summed(graph, state) if pooling == MEAN else graph.node("Gather", state, graph.constant(0), axis=1)
    length = graph.node("ReduceL2", total, graph.constant([1]), keepdims=1)
    return graph.node("Div", total, length, name="embedding")


def _summed(graph: _Graph, state: str) -> str:
    """Over the text's tokens: their count cancels out, for what is scaled to length one has no length before."""
    mask = graph.node("Unsqueeze", graph.node("Cast", "attention_mask", to=TensorProto.FLOAT), graph.constant([2]))
    return graph.node("ReduceSum", graph.node("Mul", state, mask), graph.constant([1]), keepdims=0)
