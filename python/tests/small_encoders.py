"""Folders with encoders of other architectures than BERT's: small_bert's, with their names and their rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bert_oracle
import numpy as np
import small_bert
from bert_oracle import Array
from tokenizers.processors import TemplateProcessing

# Groups of distances, of which the last begins at so many tokens.
GROUPS, FAR = 32, 128
_KINDS = "embeddings.token_type_embeddings.weight"
_PLACES = "embeddings.position_embeddings.weight"
_APART = "encoder.relative_attention_bias.weight"


@dataclass(frozen=True)
class Encoder:
    """An architecture: its own words for BERT's, and what it does otherwise."""

    config: dict[str, Any]
    prefix: str = ""
    words: dict[str, str] = field(default_factory=dict)
    # Rows of the table of places that stand before the first token's.
    first_place: int = 0
    kinds: int = 2
    has_distances: bool = False

    def write(self, folder: Path, seed: int = 1, kind: str = "F32") -> Path:
        """Writes one."""
        small_bert.write(folder, seed)
        (folder / "config.json").write_text(json.dumps(self.config))
        small_bert.write_weights(folder / "model.safetensors", seed, self.shapes(), kind)
        return folder

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every weight, by its own name."""
        shapes = small_bert.shapes()
        shapes[_PLACES] = (self.config["max_position_embeddings"], small_bert.WIDTH)
        shapes[_KINDS] = (self.kinds, small_bert.WIDTH)
        if not self.kinds:
            del shapes[_KINDS]
        if self.has_distances:
            shapes[_APART] = (GROUPS, small_bert.HEADS)
        return {self.prefix + self._own(name): shape for name, shape in shapes.items()}

    def states(self, folder: Path, tokens: list[int], kinds: list[int] | None = None) -> Array:
        """What the definition makes of tokens, and of their kinds."""
        theirs = bert_oracle.weights(folder / "model.safetensors")
        of = {name: theirs[self.prefix + self._own(name)] for name in small_bert.shapes() if self._has(name)}
        apart = _apart(theirs[self.prefix + _APART], len(tokens)) if self.has_distances else None
        return bert_oracle.states(
            of, tokens, small_bert.HEADS, kinds=kinds, first_place=self.first_place, apart=apart
        )

    def _has(self, name: str) -> bool:
        return bool(self.kinds) or name != _KINDS

    def _own(self, name: str) -> str:
        for word, own in self.words.items():
            name = name.replace(word, own)
        return name


BERT = Encoder(small_bert.CONFIG, prefix="bert.")
ROBERTA = Encoder(
    small_bert.CONFIG | {"model_type": "xlm-roberta", "pad_token_id": 1}, "roberta.", first_place=2, kinds=1
)
DISTILBERT = Encoder(
    {
        "model_type": "distilbert",
        "activation": "gelu",
        "n_layers": small_bert.LAYERS,
        "n_heads": small_bert.HEADS,
        "dim": small_bert.WIDTH,
        "max_position_embeddings": small_bert.PLACES,
    },
    words={
        "encoder.layer": "transformer.layer",
        "attention.self.query": "attention.q_lin",
        "attention.self.key": "attention.k_lin",
        "attention.self.value": "attention.v_lin",
        "attention.output.dense": "attention.out_lin",
        "attention.output.LayerNorm": "sa_layer_norm",
        "intermediate.dense": "ffn.lin1",
        ".output.dense": ".ffn.lin2",
        ".output.LayerNorm": ".output_layer_norm",
    },
    kinds=0,
)
MPNET = Encoder(
    small_bert.CONFIG
    | {"model_type": "mpnet", "pad_token_id": 1, "max_position_embeddings": 300, "layer_norm_eps": 1e-12},
    words={
        "attention.self.query": "attention.attn.q",
        "attention.self.key": "attention.attn.k",
        "attention.self.value": "attention.attn.v",
        "attention.output.dense": "attention.attn.o",
        "attention.output.LayerNorm": "attention.LayerNorm",
    },
    first_place=2,
    kinds=0,
    has_distances=True,
)

# Of each architecture the layers of its head, its pooler among them, and what stands behind all but the last.
HEADS: dict[str, tuple[Encoder, tuple[str, str], Callable[[Any], Any]]] = {
    "bert": (BERT, ("bert.pooler.dense", "classifier"), np.tanh),
    "roberta": (ROBERTA, ("classifier.dense", "classifier.out_proj"), np.tanh),
    "distilbert": (DISTILBERT, ("pre_classifier", "classifier"), lambda value: np.maximum(value, 0)),
}


def pair_tokenizer(*, has_kinds: bool = True) -> Any:
    """As BERT has it: the second text of a pair is of the second kind."""
    made = small_bert.tokenizer()
    second = int(has_kinds)
    markers = [(word, small_bert.WORDS.index(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair=f"[CLS] $A [SEP] $B:{second} [SEP]:{second}", special_tokens=markers
    )
    return made


def write_cross_encoder(folder: Path, kind: str = "bert", *, scores: int = 1, seed: int = 1) -> Path:
    """A cross-encoder of an architecture, with so many scores."""
    encoder, (inner, last), _ = HEADS[kind]
    encoder.write(folder, seed)
    pair_tokenizer(has_kinds=encoder.kinds == 2).save(str(folder / "tokenizer.json"))
    shapes = (
        encoder.shapes()
        | small_bert.dense(inner, small_bert.WIDTH, small_bert.WIDTH)
        | small_bert.dense(last, small_bert.WIDTH, scores)
    )
    small_bert.write_weights(folder / "model.safetensors", seed, shapes)
    return folder


def _apart(weights: Array, count: int) -> Array:
    """Heads x tokens x tokens: of each pair the row of its distance's group."""
    found = np.empty((weights.shape[1], count, count))
    for looking in range(count):
        for seen in range(count):
            found[:, looking, seen] = weights[_group(seen - looking)]
    return found


def _group(distance: int) -> int:
    """T5's rule (Raffel et al., JMLR 2020), of both directions."""
    half = GROUPS // 2
    behind, far = (half if distance > 0 else 0), abs(distance)
    if far < half // 2:
        return behind + far
    steps = np.log(np.float32(far) / np.float32(half // 2)) / np.float32(np.log(FAR / (half // 2)))
    return behind + min(half - 1, half // 2 + int(steps * np.float32(half - half // 2)))
