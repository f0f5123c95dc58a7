"""A folder with a BERT of two layers, as sentence-transformers lay it out: numbers are drawn, words few."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

WIDTH, HEADS, LAYERS, INNER, PLACES = 64, 4, 2, 96, 64
KINDS: dict[str, Callable[[Any], bytes]] = {
    "F32": lambda numbers: bytes(numbers.tobytes()),
    "F16": lambda numbers: bytes(numbers.astype(np.float16).tobytes()),
    # Cut, not rounded.
    "BF16": lambda numbers: bytes((numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()),
}
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *["cats", "purr", "when", "they", "are", "content", "dogs", "wag", "their", "tails"],
]
CONFIG = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "hidden_size": WIDTH,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": PLACES,
}


def write(folder: Path, seed: int = 1, *, pooling: dict[str, Any] | None = None) -> Path:
    """Writes one; with `pooling`, also which modules it has, of which that is the one's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    tokenizer().save(str(folder / "tokenizer.json"))
    write_weights(folder / "model.safetensors", seed)
    if pooling is not None:
        kinds = (("", "models.Transformer"), ("1_Pooling", "models.Pooling"), ("2_Normalize", "models.Normalize"))
        modules = [{"path": path, "type": f"sentence_transformers.{kind}"} for path, kind in kinds]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return folder


def tokenizer() -> Any:
    """Words in small letters, between markers."""
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, "[UNK]"))
    made.normalizer, made.pre_tokenizer = Lowercase(), Whitespace()
    markers = [(word, WORDS.index(word)) for word in ("[CLS]", "[SEP]")]
    made.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=markers)
    return made


def write_weights(
    path: Path, seed: int, of: Mapping[str, tuple[int, ...]] | None = None, kind: str = "F32"
) -> None:
    """A safetensors file: the header's length, the header, the numbers."""
    chance, header, data = np.random.default_rng(seed), {}, b""
    for name, shape in (of or shapes()).items():
        numbers = chance.normal(0, 0.2, shape).astype(np.float32)
        if name.endswith(("orm.weight", "_norm.weight")):
            numbers += 1
        written = KINDS[kind](numbers)
        header[name] = {
            "dtype": kind,
            "shape": list(shape),
            "data_offsets": [len(data), len(data) + len(written)],
        }
        data += written
    said = json.dumps(header).encode()
    path.write_bytes(len(said).to_bytes(8, "little") + said + data)


def shapes() -> dict[str, tuple[int, ...]]:
    """Of every weight."""
    found: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": (PLACES, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        **norm("embeddings.LayerNorm"),
    }
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}"
        for part in ("query", "key", "value"):
            found |= dense(f"{name}.attention.self.{part}", WIDTH, WIDTH)
        found |= dense(f"{name}.attention.output.dense", WIDTH, WIDTH) | norm(f"{name}.attention.output.LayerNorm")
        found |= dense(f"{name}.intermediate.dense", WIDTH, INNER) | dense(f"{name}.output.dense", INNER, WIDTH)
        found |= norm(f"{name}.output.LayerNorm")
    return found


def dense(name: str, width: int, height: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (height, width), f"{name}.bias": (height,)}


def norm(name: str) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
