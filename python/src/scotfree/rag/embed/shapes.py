"""Encoders that a graph is written for: how large they are, and what their weights are called."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final


@dataclass(frozen=True)
class Names:
    """Of an architecture's weights: below one layer's name, but for the first two."""

    # Before all names in some files.
    prefix: str
    layers: str
    query: str
    key: str
    value: str
    mixed: str
    mixed_norm: str
    inner: str
    outer: str
    outer_norm: str


BERT: Final = Names(
    "bert",
    "encoder.layer",
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
_ROBERTA: Final = replace(BERT, prefix="roberta")
_DISTILBERT: Final = Names(
    "distilbert",
    "transformer.layer",
    "attention.q_lin",
    "attention.k_lin",
    "attention.v_lin",
    "attention.out_lin",
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)
_MPNET: Final = replace(
    BERT,
    prefix="mpnet",
    query="attention.attn.q",
    key="attention.attn.k",
    value="attention.attn.v",
    mixed="attention.attn.o",
    mixed_norm="attention.LayerNorm",
)
# What a config.json calls them.
_NAMES: Final[Mapping[str, Names]] = {
    "bert": BERT,
    "distilbert": _DISTILBERT,
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": _MPNET,
}
SUPPORTED: Final = "BERT, DistilBERT, RoBERTa, XLM-RoBERTa, CamemBERT and MPNet, with gelu"
# DistilBERT's is in no file.
_EPSILON: Final = 1e-12
# MPNet's distances between tokens: in so many groups, the last of those so far apart or farther.
_DISTANCES: Final = 32
_FAR: Final = 128


@dataclass(frozen=True)
class Shape:
    """Of an encoder, as its config.json says."""

    layers: int
    heads: int
    width: int
    epsilon: float
    names: Names = BERT
    # The row of the first token's place: RoBERTa's begin behind that of what fills up.
    first_place: int = 0
    # Places that there are rows for.
    places: int = 512
    # Whether texts are of a first or a second kind.
    has_kinds: bool = True
    # Groups of distances that scores depend on, and from where on all are far; none but MPNet has them.
    distances: int = 0
    far: int = 0

    @property
    def tokens_max(self) -> int:
        """How many tokens a text may have."""
        return self.places - self.first_place

    @classmethod
    def read(cls, path: Path) -> Shape:
        """Reads it; a `ValueError` names what is not supported."""
        said = json.loads(path.read_bytes())
        kind, act = said.get("model_type"), said.get("hidden_act", said.get("activation"))
        if kind not in _NAMES or act != "gelu":
            raise ValueError(f"{path}: it is a {kind} with {act}; supported are {SUPPORTED}")
        if (positions := said.get("position_embedding_type", "absolute")) != "absolute":
            raise ValueError(f"{path}: its places are {positions}, not absolute")
        return _distilled(said) if kind == "distilbert" else _read(said, kind)


def _distilled(said: Mapping[str, Any]) -> Shape:
    layers, heads, width = (int(said[name]) for name in ("n_layers", "n_heads", "dim"))
    places = int(said["max_position_embeddings"])
    return Shape(layers, heads, width, _EPSILON, _DISTILBERT, places=places, has_kinds=False)


def _read(said: Mapping[str, Any], kind: str) -> Shape:
    layers, heads, width = (
        int(said[name]) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    found = Shape(layers, heads, width, float(said["layer_norm_eps"]), _NAMES[kind])
    found = replace(found, places=int(said["max_position_embeddings"]))
    if kind == "bert":
        return found
    found = replace(found, first_place=int(said.get("pad_token_id", 1)) + 1)
    if kind != "mpnet":
        return found
    groups = int(said.get("relative_attention_num_buckets", _DISTANCES))
    return replace(found, has_kinds=False, distances=groups, far=_FAR)
