"""A BERT encoder in plain numpy, one text at a time: what the graph's embeddings are compared with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
HEADS = 12
NUMBERS: dict[str, Callable[[bytes], Any]] = {
    "F32": lambda data: np.frombuffer(data, "<f4"),
    "F16": lambda data: np.frombuffer(data, "<f2"),
    "BF16": lambda data: (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32),
}


def weights(path: Path) -> dict[str, Array]:
    """Those of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__" and entry["dtype"] in NUMBERS:
            start, end = (8 + size + offset for offset in entry["data_offsets"])
            found[name] = NUMBERS[entry["dtype"]](data[start:end]).reshape(entry["shape"]).astype(np.float64)
    return found


def embedding(of: dict[str, Array], tokens: list[int], heads: int = HEADS, *, is_first: bool = False) -> Array:
    """Of one text's tokens, its ends' markers among them: of all of them the mean, or that of the first."""
    state = states(of, tokens, heads)
    pooled: Array = state[0] if is_first else state.mean(axis=0)
    scaled: Array = pooled / np.linalg.norm(pooled)
    return scaled


def states(
    of: dict[str, Array],
    tokens: list[int],
    heads: int = HEADS,
    *,
    kinds: list[int] | None = None,
    first_place: int = 0,
    apart: Array | None = None,
) -> Array:
    """The last layer's of each token; `apart`, heads x tokens x tokens, is added to what tokens look at."""
    state = of["embeddings.word_embeddings.weight"][tokens]
    state = state + of["embeddings.position_embeddings.weight"][first_place : first_place + len(tokens)]
    if "embeddings.token_type_embeddings.weight" in of:
        state = state + of["embeddings.token_type_embeddings.weight"][kinds or [0] * len(tokens)]
    state = norm(of, "embeddings.LayerNorm", state)
    for layer in range(layers(of)):
        name = f"encoder.layer.{layer}"
        mixed = attention(of, f"{name}.attention.self", state, heads, apart)
        mixed = dense(of, f"{name}.attention.output.dense", mixed)
        state = norm(of, f"{name}.attention.output.LayerNorm", mixed + state)
        inner = gelu(dense(of, f"{name}.intermediate.dense", state))
        state = norm(of, f"{name}.output.LayerNorm", dense(of, f"{name}.output.dense", inner) + state)
    return state


def layers(of: dict[str, Array]) -> int:
    return 1 + max(int(name.split(".")[2]) for name in of if name.startswith("encoder.layer."))


def attention(of: dict[str, Array], name: str, state: Array, heads: int, apart: Array | None = None) -> Array:
    width = state.shape[1] // heads
    query, key, value = (dense(of, f"{name}.{part}", state) for part in ("query", "key", "value"))
    mixed = np.empty_like(state)
    for head in range(heads):
        own = slice(head * width, (head + 1) * width)
        scores = query[:, own] @ key[:, own].T / math.sqrt(width)
        scores = np.exp(scores if apart is None else scores + apart[head])
        mixed[:, own] = scores / scores.sum(axis=1, keepdims=True) @ value[:, own]
    return mixed


def dense(of: dict[str, Array], name: str, state: Array) -> Array:
    found: Array = state @ of[f"{name}.weight"].T + of[f"{name}.bias"]
    return found


def norm(of: dict[str, Array], name: str, state: Array) -> Array:
    centred = state - state.mean(axis=1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-12)
    found: Array = scaled * of[f"{name}.weight"] + of[f"{name}.bias"]
    return found


def gelu(value: Array) -> Array:
    found: Array = value * (1 + np.vectorize(math.erf)(value / math.sqrt(2))) / 2
    return found
