"""OpenVINO's vectors are ONNX Runtime's, whatever numbers it multiplies, and nobody is told that it is used."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import small_bert
from small_encoders import DISTILBERT, MPNET, ROBERTA, Encoder

from scotfree.rag import Document, Index, OnnxEmbedder, RagError
from scotfree.rag.embed import by_name
from scotfree.rag.embed.openvino_embedder import OpenVinoEmbedder, Precision, process_core
from scotfree.rag.embed.prompts import Said

TEXTS = ["Why does my cat hum? " * 9, "cats", "", "Größe, naïveté, 東京 and `code()`", "logrotate compresses logs"]
SILENT = Path(__file__).with_name("rag_silent.py")


@pytest.fixture(scope="module")
def embedder() -> OpenVinoEmbedder:
    return OpenVinoEmbedder(threads=2)


def test_it_takes_the_numbers_that_the_processor_has(embedder: OpenVinoEmbedder) -> None:
    able = "BF16" in process_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    assert embedder.precision == ("bf16" if able else "f32")
    used = embedder._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    assert used == ("bf16" if able else "f32")
    assert embedder.device == "CPU" and embedder.name == "openvino:all-MiniLM-L6-v2"


def test_its_vectors_are_those_of_the_other(embedder: OpenVinoEmbedder) -> None:
    other = OnnxEmbedder(threads=2)
    cosines = (embedder.embed(TEXTS) * other.embed(TEXTS)).sum(axis=1)
    assert cosines.min() > (0.999 if embedder.precision == "bf16" else 0.999999)
    assert embedder.digest == other.digest and embedder.dimensions == other.dimensions


@pytest.mark.parametrize(("precision", "least", "most"), [("f32", 0.999999, 2), ("bf16", 0.999, 0.99999999)])
def test_numbers_of_fewer_digits_are_near_enough(
    tmp_path: Path, precision: Precision, least: float, most: float
) -> None:
    """A processor without bf16 works them out by others, slowly; one that cannot takes single precision."""
    folder = small_bert.write(tmp_path, pooling={"pooling_mode": "cls"})
    embedder, texts = OpenVinoEmbedder(folder, precision=precision), ["cats purr when content", "dogs wag tails"]
    cosines = (embedder.embed(texts).astype(np.float64) * OnnxEmbedder(folder).embed(texts)).sum(axis=1)
    used = embedder._compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name()
    assert cosines.min() > least
    assert used == "f32" or cosines.max() < most, "it is no other number than before"


@pytest.mark.parametrize("encoder", [DISTILBERT, ROBERTA, MPNET])
@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_other_encoders_and_weights_of_half_the_bytes_give_the_same(
    tmp_path: Path, encoder: Encoder, kind: str
) -> None:
    folder = encoder.write(tmp_path / "model", kind=kind)
    prompts = Said(query_prompt="dogs ", passage_prompt="cats ")
    own = OpenVinoEmbedder(folder, precision="f32", **prompts)
    other = OnnxEmbedder(folder, **prompts)
    texts = ["cats purr when content", "dogs wag tails " * 9]
    assert (own.embed(texts) * other.embed(texts)).sum(axis=1).min() > 0.999999
    assert (own.embed_questions(texts) * other.embed_questions(texts)).sum(axis=1).min() > 0.999999
    assert own.digest == other.digest


def test_one_index_serves_both(tmp_path: Path) -> None:
    folder = small_bert.write(tmp_path / "model")
    texts = ["cats purr when they are content", "dogs wag their tails"]
    with Index.build(
        tmp_path / "index", [Document(text, text) for text in texts], by_name(f"openvino:{folder}")
    ) as index:
        assert index.search(texts[0], 1).hits[0].document == texts[0]
    with Index(tmp_path / "index", by_name(f"onnx:{folder}")) as index:
        assert index.search(texts[1], 1).hits[0].document == texts[1]


def test_threads_get_their_own_vectors(embedder: OpenVinoEmbedder) -> None:
    alone = [embedder.embed([text]) for text in TEXTS]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda text: embedder.embed([text]), TEXTS * 4))
    assert max(np.abs(one - many).max() for one, many in zip(alone * 4, together, strict=True)) < 1e-6


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    folder = small_bert.write(tmp_path / "model")
    (folder / "config.json").write_text((folder / "config.json").read_text().replace("64", "128"))
    with pytest.raises(RagError, match="embed with the model"):
        by_name(f"openvino:{folder}")


# A stack for signals as Python's own has it, several embedders of which the first goes first, and a signal.
SIGNALLED = """
import faulthandler, gc, pathlib, signal, sys
from scotfree.rag.embed.openvino_embedder import OpenVinoEmbedder
faulthandler.enable()
signal.signal(signal.SIGTERM, lambda *_: print("told", flush=True))
several = [OpenVinoEmbedder(pathlib.Path(sys.argv[1])) for _ in range(3)]
while several:
    del several[0]
    gc.collect()
    signal.raise_signal(signal.SIGTERM)
"""


def test_a_signal_is_handled_after_an_embedder_is_gone(tmp_path: Path) -> None:
    """The library puts another stack for signals in the place of Python's: one that must not go away."""
    folder = small_bert.write(tmp_path / "model")
    ended = subprocess.run([sys.executable, "-c", SIGNALLED, folder], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "told\n" * 3), ended.stderr


def test_nobody_is_told_that_it_is_used(tmp_path: Path) -> None:
    """The library's package for telling is there, and would not look whether it is in a test."""
    folder = small_bert.write(tmp_path / "model")
    home = tmp_path / "home"
    home.mkdir()
    said = {name: value for name, value in os.environ.items() if name != "CI"} | {"HOME": str(home)}
    ended = subprocess.run([sys.executable, SILENT, folder], env=said, capture_output=True, text=True, check=True)
    assert ended.stdout == "a vector of 64\n", ended.stderr
    assert not (home / "intel").exists()
