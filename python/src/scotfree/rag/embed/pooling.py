"""How the states of a text's tokens become its one vector, as the modules of sentence-transformers say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.embed.weights import numbers, tensors

# The mean of the tokens' states, or that of the first.
MEAN: Final = "mean"
FIRST: Final = "cls"
_LINEAR, _TANH = "Identity", "Tanh"
_WEIGHTS: Final = "model.safetensors"


@dataclass(frozen=True, eq=False)
class Dense:
    """A layer behind the pooling."""

    weight: Vectors
    bias: Vectors
    has_tanh: bool

    @classmethod
    def read(cls, folder: Path) -> Dense:
        """Of a module's folder; a `ValueError` says what of it is not supported."""
        said = json.loads((folder / "config.json").read_bytes())
        kind = str(said.get("activation_function", _TANH)).rpartition(".")[2]
        if kind not in (_LINEAR, _TANH):
            raise ValueError(f"{folder}: its layer ends in {kind}, neither in {_TANH} nor in nothing")
        known = tensors(folder / _WEIGHTS)
        weight = numbers(folder / _WEIGHTS, known["linear.weight"])
        has_bias = said.get("bias", True)
        bias = numbers(folder / _WEIGHTS, known["linear.bias"]) if has_bias else np.zeros(len(weight), np.float32)
        return cls(weight, bias, kind == _TANH)

    def __call__(self, rows: Vectors) -> Vectors:
        """Rows through it."""
        found: Vectors = rows @ self.weight.T + self.bias
        return np.tanh(found) if self.has_tanh else found


@dataclass(frozen=True, eq=False)
class Pooling:
    """What makes one vector of many; in the end all have length one."""

    mode: str = MEAN
    # Behind it layers, and None where vectors are scaled to length one before the next of them.
    steps: tuple[Dense | None, ...] = ()
    # Whether a prompt counts as part of its text.
    has_prompt: bool = True

    @property
    def layers(self) -> list[Dense]:
        """The layers."""
        return [step for step in self.steps if step is not None]

    def of_states(self, states: Vectors, mask: np.ndarray[Any, np.dtype[np.int64]]) -> Vectors:
        """Vectors of length one, of batch x tokens x width; the mask is 1 for a text's tokens."""
        if self.mode == FIRST:
            found = states[:, 0]
        else:
            shares = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)
            found = np.einsum("btw,bt->bw", states, shares)
        for step in self.steps:
            found = scaled(found) if step is None else step(found)
        return scaled(found)


def scaled(rows: Vectors) -> Vectors:
    """To length one."""
    found: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return found


def read(path: Path) -> tuple[str, bool]:
    """A pooling's mode, and whether prompts count; newer files name it, older ones have a switch for each."""
    said = json.loads(path.read_bytes())
    switches = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": FIRST}
    on = [switches.get(name, name) for name, value in said.items() if name.startswith("pooling_mode_") and value]
    found = said.get("pooling_mode", on[0] if len(on) == 1 else on)
    if found not in (MEAN, FIRST):
        raise ValueError(f"{path}: its pooling is {found}, neither the mean of the tokens nor the first of them")
    return str(found), bool(said.get("include_prompt", True))
