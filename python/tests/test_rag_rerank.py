"""The reranker: its scores are those of the definition, and what is found is printed in their order."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import bert_oracle
import numpy as np
import onnx
import pytest
import small_bert
from bert_oracle import Array
from onnx import TensorProto, helper
from small_encoders import BERT, HEADS, pair_tokenizer
from small_encoders import write_cross_encoder as write

from scotfree.rag import CrossEncoder, Hit, RagError, cli
from scotfree.rag.embed.bert_graph import build_scorer
from scotfree.rag.embed.shapes import Shape

QUESTION = "what do cats do"
TEXTS = ["cats purr", "dogs wag their tails", "they are content " * 9, "tails", "", "dogs purr when cats wag"]


def wanted(folder: Path, kind: str, text: str) -> float:
    """The score that the definition gives a text."""
    encoder, (inner, last), act = HEADS[kind]
    pair = pair_tokenizer(has_kinds=encoder.kinds == 2).encode(QUESTION, text)
    of = bert_oracle.weights(folder / "model.safetensors")
    first: Array = encoder.states(folder, pair.ids, pair.type_ids)[:1]
    return float(bert_oracle.dense(of, last, act(bert_oracle.dense(of, inner, first)))[0, 0])


def hits(texts: list[str]) -> list[Hit]:
    return [Hit(place, text, f"{place}.txt", 0, 1 - place / 10, {}) for place, text in enumerate(texts)]


@pytest.mark.parametrize("kind", HEADS)
def test_scores_are_those_of_the_definition(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path / "model", kind)
    scores = CrossEncoder(folder).scores(QUESTION, TEXTS)
    right = [wanted(folder, kind, text) for text in TEXTS]
    assert np.abs(scores - right).max() < 1e-4
    assert len(set(np.argsort(right))) == len(TEXTS) and np.ptp(right) > 0.1, "they tell texts apart"
    assert CrossEncoder(folder).scores(QUESTION, []).shape == (0,)


def test_what_was_found_is_put_in_the_order_of_its_scores(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    found = hits(TEXTS)
    right = sorted(found, key=lambda hit: -wanted(folder, "bert", hit.text))
    ranked = CrossEncoder(folder).rerank(QUESTION, found, 3)
    assert [hit.document for hit in ranked] == [hit.document for hit in right[:3]]
    assert [hit.document for hit in ranked] != [hit.document for hit in found[:3]]
    for hit in ranked:
        assert asdict(hit) == asdict(found[hit.number]) | {"score": hit.score}, "all else is as it was"
        assert hit.score == pytest.approx(wanted(folder, "bert", hit.text), abs=1e-4)
    same = CrossEncoder(folder).rerank(QUESTION, hits(["cats"] * 5), 5)
    assert [hit.number for hit in same] == [0, 1, 2, 3, 4], "of equals that first which was found first"
    assert CrossEncoder(folder).rerank(QUESTION, [], 5) == []


def test_a_pair_that_is_too_long_is_cut(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    model, long = CrossEncoder(folder), "cats purr when they are content " * 40
    (score, same) = model.scores(QUESTION, [long, f"{long} dogs"])
    assert model.tokens_max == small_bert.PLACES and score == same
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 16}')
    assert CrossEncoder(folder).tokens_max == 16 and CrossEncoder(folder).scores(QUESTION, [long])[0] != score
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 1e30}')
    assert CrossEncoder(folder).tokens_max == small_bert.PLACES


def write_ready(folder: Path, output: str = "logits") -> Path:
    """A graph with its weights in it, whose scores stand in rows of one, as exporters have it."""
    model = onnx.load_from_string(build_scorer(folder / "model.safetensors", Shape.read(folder / "config.json")))
    onnx.load_external_data_for_model(model, str(folder))
    for tensor in model.graph.initializer:
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT
    last = model.graph.node[-1]
    name = last.input[0]
    del model.graph.node[-1], model.graph.output[:]
    model.graph.node.append(helper.make_node("Identity", [name], [output]))
    model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, ["batch", "scores"]))
    onnx.save(model, folder / "model.onnx")
    (folder / "model.safetensors").unlink()
    return folder / "model.onnx"


@pytest.mark.parametrize("kind", HEADS)
def test_a_ready_graph_is_run_as_it_is(tmp_path: Path, kind: str) -> None:
    folder = write(tmp_path / "model", kind)
    before = CrossEncoder(folder).scores(QUESTION, TEXTS)
    write_ready(folder)
    assert np.abs(CrossEncoder(folder).scores(QUESTION, TEXTS) - before).max() < 1e-5


def test_what_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    encoder = small_bert.write(tmp_path / "encoder")
    classes = write(tmp_path / "classes", scores=3)
    cut = write(tmp_path / "cut")
    weights = (cut / "model.safetensors").read_bytes()
    (cut / "model.safetensors").write_bytes(weights[:-4])
    words = write(tmp_path / "words")
    (words / "tokenizer.json").write_text("{}")
    ready = write(tmp_path / "ready")
    path = write_ready(ready)
    path.write_bytes(path.read_bytes()[:-100])
    for folder, said in (
        (tmp_path / "absent", "No such file"),
        (encoder, "it has no weight pooler.dense.weight"),
        (classes, "it gives a text 3 scores, not one"),
        (cut, "it is cut off, or damaged, at"),
        (words, "Model missing"),
        (ready, "rerank with the model"),
    ):
        with pytest.raises(RagError, match=said) as refused:
            CrossEncoder(folder)
        assert str(refused.value).startswith(f"rerank with the model {folder}: ")
        assert "of a cross-encoder" in refused.value.advice


def test_scores_that_are_none_are_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    made = pair_tokenizer()
    made.add_tokens(["violin"])
    made.save(str(folder / "tokenizer.json"))
    with pytest.raises(RagError, match="rerank with the model"):
        CrossEncoder(folder).scores("violin", ["cats"])
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-4:] = np.float32(np.nan).tobytes()
    weights.write_bytes(data)
    with pytest.raises(RagError, match="a score of it is no number"):
        CrossEncoder(folder).scores(QUESTION, ["cats"])


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("SCOTFREE_EMBEDDER", raising=False)
    (tmp_path / "notes").mkdir()
    for place, text in enumerate(TEXTS):
        (tmp_path / f"notes/{place}.txt").write_text(text)
    model = small_bert.write(tmp_path / "embedder")
    assert cli.main(["index", str(tmp_path / "notes"), "--embedder", f"onnx:{model}", "--quiet"]) == 0
    capsys.readouterr()
    return tmp_path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert cli.main(["ask", QUESTION, "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_command_prints_what_is_found_in_the_new_order(index: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(index / "model")
    plain = asked(capsys, "--count", "5")
    right = sorted(plain["hits"], key=lambda hit: -wanted(folder, "bert", hit["text"]))
    found = asked(capsys, "--rerank", str(folder), "--count", "2")
    assert [hit["document"] for hit in found["hits"]] == [hit["document"] for hit in right[:2]]
    assert "cross-encoder" in found["stages_ns"] and "cross-encoder" not in plain["stages_ns"]
    assert [hit["score"] for hit in found["hits"]] == sorted((hit["score"] for hit in found["hits"]), reverse=True)
    # Of two that are nearest it chooses among those.
    of_two = asked(capsys, "--rerank", str(folder), "--count", "1", "--rerank-from", "2")["hits"]
    near = plain["hits"][:2]
    assert of_two[0]["document"] == max(near, key=lambda hit: wanted(folder, "bert", hit["text"]))["document"]
    # As many as are asked for, if that is more.
    assert len(asked(capsys, "--rerank", str(folder), "--count", "5", "--rerank-from", "2")["hits"]) == 5
    assert cli.main(["ask", QUESTION, "--rerank", str(folder), "--count", "1"]) == 0
    assert f", score {found['hits'][0]['score']:.2f})" in capsys.readouterr().out


def test_a_command_refuses_what_cannot_rank_before_it_asks(
    index: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["ask", QUESTION, "--rerank", str(index / "embedder")]) == 2
    assert "it has no weight pooler.dense.weight; name a folder" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "scotfree.rag.rerank.cross_encoder", None)
    assert cli.main(["ask", QUESTION, "--rerank", str(index)]) == 2
    assert "pip install 'scotfree[rag]'" in capsys.readouterr().err


def test_the_oracle_tells_kinds_apart(tmp_path: Path) -> None:
    folder, pair = write(tmp_path / "model"), pair_tokenizer().encode(QUESTION, "cats purr")
    alike = BERT.states(folder, pair.ids, [0] * len(pair.ids))
    assert np.abs(alike - BERT.states(folder, pair.ids, pair.type_ids)).max() > 1e-3
