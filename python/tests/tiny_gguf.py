"""A language model of 100 KB with random weights, which writes letters from a to p and never ends by itself."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

_WIDTH, _HEADS, _INNER = 32, 2, 32
# Unknown, begin, end; then every byte, so that it reads any text.
_MARKS = [b"<unk>", b"<s>", b"</s>"]
_LETTERS = b"abcdefghijklmnop"
# Kinds of tokens: unknown, control, byte.
_KINDS = [2, 3, 3] + [6] * 256


def write(path: Path) -> None:
    """Writes it, the same each time."""
    writer = gguf.GGUFWriter(path, "llama")
    _describe(writer)
    for name, values in _weights().items():
        writer.add_tensor(f"{name}.weight", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _describe(writer: gguf.GGUFWriter) -> None:
    tokens = _MARKS + [b"<0x%02X>" % byte for byte in range(256)]
    writer.add_context_length(16_384)
    writer.add_embedding_length(_WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(_WIDTH // _HEADS)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(_KINDS)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for message in messages %}{{ message['content'] }}{% endfor %}")


def _weights() -> dict[str, np.ndarray]:
    chance = np.random.default_rng(1)

    def drawn(*shape: int) -> np.ndarray:
        return chance.normal(0, 0.5, shape).astype(np.float32)

    tokens = len(_KINDS)
    embedding, output = drawn(tokens, _WIDTH), drawn(tokens, _WIDTH)
    # Every token says "letters only" in its first number, which nothing changes on the way.
    embedding[:, 0] = 3
    output[:, 0] = -5000
    output[[len(_MARKS) + letter for letter in _LETTERS], 0] = 0
    ones = np.ones(_WIDTH, np.float32)
    square = {f"blk.0.attn_{name}": drawn(_WIDTH, _WIDTH) for name in ("q", "k", "v", "output")}
    inner = {f"blk.0.ffn_{name}": drawn(_INNER, _WIDTH) for name in ("gate", "up")}
    down = drawn(_WIDTH, _INNER)
    square["blk.0.attn_output"][0] = down[0] = 0
    return {
        "token_embd": embedding,
        "output": output,
        "output_norm": ones,
        "blk.0.attn_norm": ones,
        "blk.0.ffn_norm": ones,
        "blk.0.ffn_down": down,
        **square,
        **inner,
    }
