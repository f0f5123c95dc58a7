"""An encoder of BERT's kind as an ONNX graph over the weights of its safetensors file.

The embedding is the mean of the last layer's states over the text's tokens, or the state of its first token,
scaled to length one (Reimers and Gurevych, EMNLP 2019, section 3). A cross-encoder makes a score of a question and
a text together instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from onnx import TensorProto

from scotfree.rag.embed.graph import Graph, Input
from scotfree.rag.embed.pooling import FIRST, Pooling
from scotfree.rag.embed.shapes import Shape

# Added to what a token shall not look at.
_HIDDEN: Final = -1e4
IDS: Final = Input("input_ids")
MASK: Final = Input("attention_mask")
KINDS: Final = Input("token_type_ids")


def build(
    weights: Path,
    shape: Shape,
    pooling: Pooling | None = None,
    *,
    are_weights_inputs: bool = False,
    is_whole: bool = False,
) -> bytes:
    """The graph: `input_ids`, `attention_mask` (batch x tokens, int64) to `embedding` (batch x width, float).

    It names where in the file each weight lies; see `Graph` for the flags. A `ValueError` says what is wrong.
    """
    pooling = pooling or Pooling()
    names = shape.names
    graph = Graph(weights, names.prefix, are_weights_inputs=are_weights_inputs, is_whole=is_whole)
    width = pooling.layers[-1].weight.shape[0] if pooling.layers else shape.width
    return graph.written([IDS, MASK], _pooled(graph, _layers(graph, shape), pooling), ["batch", width])


def build_scorer(weights: Path, shape: Shape) -> bytes:
    """A cross-encoder's graph: as above, with `token_type_ids` where texts are of two kinds, to `score` (batch).

    A `ValueError` says what is wrong.
    """
    graph = Graph(weights, shape.names.prefix)
    has_two = shape.has_kinds and graph.shape("embeddings.token_type_embeddings.weight")[0] > 1
    state = _layers(graph, shape, KINDS.name if has_two else "")
    first = graph.node("Gather", state, graph.constant(0), axis=1)
    inputs = [IDS, MASK, KINDS] if has_two else [IDS, MASK]
    score = graph.node("Squeeze", _score(graph, first), graph.constant([1]), name="score")
    return graph.written(inputs, score, ["batch"])


def _score(graph: Graph, first: str) -> str:
    """Of the first token's state: batch x 1."""
    if graph.has("classifier.out_proj.weight"):
        last = "classifier.out_proj"
        first = graph.node("Tanh", graph.linear(first, "classifier.dense"))
    else:
        last = "classifier"
        if graph.has("pre_classifier.weight"):
            first = graph.node("Relu", graph.linear(first, "pre_classifier"))
        else:
            first = graph.node("Tanh", graph.linear(first, "pooler.dense"))
    if (count := graph.shape(f"{last}.weight")[0]) != 1:
        raise ValueError(f"it gives a text {count} scores, not one: it tells classes apart and ranks nothing")
    return graph.linear(first, last)


@dataclass(frozen=True)
class _Around:
    """What is the same in all layers."""

    # Batch x tokens x heads x width of a head.
    parted: str
    # What is added to the scores.
    hidden: str


def _layers(graph: Graph, shape: Shape, kinds: str = "") -> str:
    """The last layer's states, batch x tokens x width; `kinds` are tokens', the first unless they are said."""
    sizes = graph.node("Shape", IDS.name)
    tokens = graph.node("Gather", sizes, graph.constant([1]))
    head = graph.constant([shape.heads, shape.width // shape.heads])
    parted = graph.node("Concat", sizes, head, axis=0, name="parted")
    whole = graph.node("Concat", sizes, graph.constant([shape.width]), axis=0, name="whole")
    hidden = _hidden(graph)
    if shape.distances:
        hidden = graph.node("Add", hidden, _apart(graph, shape, tokens))
    around = _Around(parted, hidden)
    state = _embedded(graph, shape, tokens, kinds)
    state = graph.node("Reshape", state, graph.constant([-1, shape.width]))
    for layer in range(shape.layers):
        state = _layer(graph, shape, f"{shape.names.layers}.{layer}", state, around)
    return graph.node("Reshape", state, whole)


def _embedded(graph: Graph, shape: Shape, tokens: str, kinds: str) -> str:
    """Word, place and kind."""
    words = graph.rows("embeddings.word_embeddings.weight", IDS.name)
    end = graph.node("Add", tokens, graph.constant([shape.first_place])) if shape.first_place else tokens
    places = "embeddings.position_embeddings.weight"
    if (rows := graph.shape(places)[0]) < shape.places:
        raise ValueError(f"its weights have {rows} places, and its config.json says {shape.places}")
    table = graph.weight(places)
    placed = graph.node("Slice", table, graph.constant([shape.first_place]), end)
    if shape.has_kinds:
        kind = graph.rows("embeddings.token_type_embeddings.weight", kinds or graph.constant(0))
        placed = graph.node("Add", placed, kind)
    return graph.norm(graph.node("Add", words, placed), "embeddings.LayerNorm", shape.epsilon)


def _hidden(graph: Graph) -> str:
    """What is added to the scores: nothing for the text's tokens, much below it for those that fill up."""
    mask = graph.node("Cast", MASK.name, to=TensorProto.FLOAT)
    missing = graph.node("Sub", graph.constant(np.float32(1)), mask)
    scaled = graph.node("Mul", missing, graph.constant(np.float32(_HIDDEN)))
    return graph.node("Unsqueeze", scaled, graph.constant([1, 2]))


def _apart(graph: Graph, shape: Shape, tokens: str) -> str:
    """What is added to the scores by how far apart two tokens stand: 1 x heads x tokens x tokens."""
    count = graph.node("Squeeze", tokens)
    places = graph.node("Range", graph.constant(0), count, graph.constant(1))
    looking, seen = (graph.node("Unsqueeze", places, graph.constant([axis])) for axis in (1, 0))
    apart = graph.node("Sub", seen, looking)
    moved = graph.node("Add", apart, graph.constant(shape.tokens_max - 1))
    groups = graph.node("Gather", graph.constant(_groups(shape)), moved)
    by_head = graph.rows("encoder.relative_attention_bias.weight", groups)
    return graph.node("Unsqueeze", graph.node("Transpose", by_head, perm=[2, 0, 1]), graph.constant([0]))


def _groups(shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Of each distance, the most negative first, its group: near ones have their own, far ones share."""
    most = shape.tokens_max - 1
    distances = np.arange(-most, most + 1)
    half = shape.distances // 2
    near = half // 2
    # In single precision, as whoever trained it did: on the borders that decides.
    logs = np.log(np.maximum(np.abs(distances), 1).astype(np.float32) / np.float32(near))
    far = near + (logs / np.float32(np.log(shape.far / near)) * np.float32(half - near)).astype(np.int64)
    groups = np.where(np.abs(distances) < near, np.abs(distances), np.minimum(far, half - 1))
    # Behind a token are the groups of the second half.
    found: np.ndarray[tuple[int, ...], np.dtype[np.int64]] = groups + np.where(distances > 0, half, 0)
    return found


def _layer(graph: Graph, shape: Shape, name: str, state: str, around: _Around) -> str:
    names = shape.names
    dense = graph.linear(_attention(graph, shape, name, state, around), f"{name}.{names.mixed}")
    state = graph.norm(graph.node("Add", dense, state), f"{name}.{names.mixed_norm}", shape.epsilon)
    inner = _gelu(graph, graph.linear(state, f"{name}.{names.inner}"))
    outer = graph.linear(inner, f"{name}.{names.outer}")
    return graph.norm(graph.node("Add", outer, state), f"{name}.{names.outer_norm}", shape.epsilon)


def _attention(graph: Graph, shape: Shape, name: str, state: str, around: _Around) -> str:
    """Every token looks at all: rows x width, as its input."""
    names = shape.names

    def heads(part: str, order: list[int]) -> str:
        split = graph.node("Reshape", graph.linear(state, f"{name}.{part}"), around.parted)
        return graph.node("Transpose", split, perm=order)

    scores = graph.node("MatMul", heads(names.query, [0, 2, 1, 3]), heads(names.key, [0, 2, 3, 1]))
    scale = graph.constant(np.float32((shape.width // shape.heads) ** -0.5))
    seen = graph.node("Add", graph.node("Mul", scores, scale), around.hidden)
    shares = graph.node("Softmax", seen, axis=-1)
    mixed = graph.node("MatMul", shares, heads(names.value, [0, 2, 1, 3]))
    together = graph.node("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.node("Reshape", together, graph.constant([-1, shape.width]))


def _gelu(graph: Graph, value: str) -> str:
    """x times the normal distribution's share below x."""
    error = graph.node("Erf", graph.node("Div", value, graph.constant(np.float32(np.sqrt(2)))))
    share = graph.node("Add", error, graph.constant(np.float32(1)))
    return graph.node("Mul", graph.node("Mul", value, share), graph.constant(np.float32(0.5)))


def _pooled(graph: Graph, state: str, pooling: Pooling) -> str:
    if pooling.mode == FIRST:
        total = graph.node("Gather", state, graph.constant(0), axis=1)
    else:
        total = _summed(graph, state)
        total = graph.node("Div", total, _count(graph)) if pooling.layers else total
    for step in pooling.steps:
        if step is None:
            total = graph.node("Div", total, _length(graph, total))
        else:
            total = graph.node("Gemm", total, graph.constant(step.weight), graph.constant(step.bias), transB=1)
            total = graph.node("Tanh", total) if step.has_tanh else total
    return graph.node("Div", total, _length(graph, total), name="embedding")


def _length(graph: Graph, rows: str) -> str:
    return graph.node("ReduceL2", rows, graph.constant([1]), keepdims=1)


def _summed(graph: Graph, state: str) -> str:
    """Over the text's tokens: their count cancels out, for what is scaled to length one has no length before."""
    mask = graph.node("Unsqueeze", graph.node("Cast", MASK.name, to=TensorProto.FLOAT), graph.constant([2]))
    return graph.node("ReduceSum", graph.node("Mul", state, mask), graph.constant([1]), keepdims=0)


def _count(graph: Graph) -> str:
    mask = graph.node("Cast", MASK.name, to=TensorProto.FLOAT)
    return graph.node("ReduceSum", mask, graph.constant([1]), keepdims=1)
