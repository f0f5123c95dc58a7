"""A language model of a known shape whose weights are drawn by chance, as a GGUF file (llama's architecture).

What it writes are letters from a to p without sense, and it never ends by itself; what it takes to read a prompt
is what a model of that shape takes. Each byte of a text is a token of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import gguf
import numpy as np

# Unknown, begin, end; then every byte, so that it reads any text.
_MARKS: Final = [b"<unk>", b"<s>", b"</s>"]
_LETTERS: Final = b"abcdefghijklmnop"
# Kinds of tokens: unknown, control, byte.
_KINDS: Final = [2, 3, 3] + [6] * 256
_CONTEXT_TOKENS: Final = 16_384


@dataclass(frozen=True)
class Shape:
    """What decides how much arithmetic a token takes."""

    width: int
    layers: int
    heads: int
    # Keys and values are shared by as many heads as there are for each of these.
    key_heads: int
    inner: int
    # Weights have eight bits, in blocks of 32 with a factor each (Q8_0), instead of floats.
    is_small: bool = False

    @property
    def weights(self) -> int:
        """How many a token meets, without those of the vocabulary."""
        keys = self.width * self.key_heads // self.heads
        return self.layers * self.width * (2 * self.width + 2 * keys + 3 * self.inner)


def write(path: Path, shape: Shape) -> None:
    """Writes it, the same each time."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer, shape)
    kind = gguf.GGMLQuantizationType.Q8_0
    for name, values in _weights(shape):
        is_small = shape.is_small and values.ndim > 1
        made = gguf.quants.quantize(values, kind) if is_small else values
        writer.add_tensor(f"{name}.weight", made, raw_dtype=kind if is_small else None)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    tokens = _MARKS + [b"<0x%02X>" % byte for byte in range(256)]
    writer.add_context_length(_CONTEXT_TOKENS)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(_KINDS)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")


def _weights(shape: Shape) -> Iterator[tuple[str, np.ndarray]]:
    chance = np.random.default_rng(1)
    tokens, width, keys = len(_KINDS), shape.width, shape.width * shape.key_heads // shape.heads

    def drawn(rows: int, columns: int) -> np.ndarray:
        # Of any width a product is as large as what goes into it, thrice.
        return chance.normal(0, 3 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    embedding, output = drawn(tokens, width), drawn(tokens, width)
    # Every token says "letters only" in its first number, which nothing changes on the way.
    embedding[:, 0] = 3
    output[:, 0] = -5000
    output[[len(_MARKS) + letter for letter in _LETTERS], 0] = 0
    ones = np.ones(width, np.float32)
    yield "token_embd", embedding
    yield "output", output
    yield "output_norm", ones
    for layer in range(shape.layers):
        attended, down = drawn(width, width), drawn(width, shape.inner)
        attended[0] = down[0] = 0
        of = {
            "attn_norm": ones,
            "ffn_norm": ones,
            "attn_q": drawn(width, width),
            "attn_k": drawn(keys, width),
            "attn_v": drawn(keys, width),
            "attn_output": attended,
            "ffn_gate": drawn(shape.inner, width),
            "ffn_up": drawn(shape.inner, width),
            "ffn_down": down,
        }
        yield from ((f"blk.{layer}.{name}", values) for name, values in of.items())
