"""Prompts: what stands before questions and passages, who says it, and that an index keeps to its own."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bert_oracle
import numpy as np
import pytest
import small_bert

from scotfree.rag import Document, Index, OnnxEmbedder, RagError, cli
from scotfree.rag.embed import by_name
from scotfree.rag.embed.embedder import Vectors, embed_questions
from scotfree.rag.embed.prompts import Prompts
from scotfree.rag.evaluation.known import Known
from scotfree.rag.integrations.adapted import Adapted, Handed, ask

# By how much rows of whole numbers are off.
ROUNDED = 3e-3
CATS, DOGS = "Cats purr when they are content.", "Dogs wag their tails."
QUERY, PASSAGE = "dogs dogs ", "when "


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where indexes and models of this test lie, and its user has said nothing."""
    for name, text in (("cats", CATS), ("dogs", DOGS)):
        (tmp_path / "notes").mkdir(exist_ok=True)
        (tmp_path / "notes" / f"{name}.txt").write_text(text)
    for name in ("DATA", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("SCOTFREE_EMBEDDER", raising=False)
    return tmp_path


@pytest.fixture
def model(folder: Path) -> Path:
    return small_bert.write(folder / "model")


def say(model: Path, prompts: dict[str, Any], default: str | None = None) -> None:
    said = {"prompts": prompts, "default_prompt_name": default, "similarity_fn_name": "cosine"}
    (model / "config_sentence_transformers.json").write_text(json.dumps(said))


def wanted(model: Path, text: str) -> Any:
    weights = bert_oracle.weights(model / "model.safetensors")
    return bert_oracle.embedding(weights, small_bert.tokenizer().encode(text).ids, small_bert.HEADS)


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """What a command prints."""
    assert cli.main(words) == code
    printed = capsys.readouterr()
    return printed.out if code == 0 else printed.err


@pytest.mark.parametrize(
    ("prompts", "default", "found"),
    [
        ({"query": "cats ", "passage": "dogs "}, None, Prompts("cats ", "dogs ")),
        ({"query": "cats ", "document": "wag ", "passage": "dogs "}, None, Prompts("cats ", "wag ")),
        ({"query": "cats ", "corpus": "dogs "}, None, Prompts("cats ", "dogs ")),
        ({"query": "cats "}, None, Prompts("cats ", "")),
        ({"query": "cats ", "any": "they "}, "any", Prompts("cats ", "they ")),
        ({"any": "they "}, "any", Prompts("they ", "they ")),
        ({"any": "they "}, None, Prompts()),
        ({}, None, Prompts()),
    ],
)
def test_prompts_are_what_the_folder_says(
    model: Path, prompts: dict[str, str], default: str | None, found: Prompts
) -> None:
    plain = by_name(f"onnx:{model}").digest
    say(model, prompts, default)
    embedder = OnnxEmbedder(model)
    assert embedder.prompts == found and (embedder.digest == plain) is (found == Prompts())
    assert np.abs(embedder.embed(["purr"])[0] - wanted(model, f"{found.passage}purr")).max() < 1e-5
    assert np.abs(embedder.embed_questions(["purr"])[0] - wanted(model, f"{found.query}purr")).max() < 1e-5


def test_prompts_that_are_said_stand_in_place_of_the_folders(model: Path) -> None:
    say(model, {"query": "cats ", "passage": "dogs "})
    name, own = f"onnx:{model}", Prompts("cats ", "dogs ")
    assert by_name(name, query_prompt="wag ").prompts == Prompts("wag ", "dogs ")  # type: ignore[attr-defined]
    assert by_name(name, query_prompt="", passage_prompt="").digest != by_name(name).digest
    assert by_name(name, query_prompt="cats ", passage_prompt="dogs ").digest == by_name(name).digest
    assert own.digest(b"x") != Prompts("cats dogs ", "").digest(b"x") != Prompts("", "cats dogs ").digest(b"x")


def test_prompts_that_are_none_are_refused(model: Path) -> None:
    for prompts, default, said in (
        ({"query": 7}, None, "its prompt query is no text"),
        ({}, "absent", "its prompt absent is no text"),
    ):
        say(model, prompts, default)
        with pytest.raises(RagError, match=said):
            OnnxEmbedder(model)
    say(model, {})
    with pytest.raises(RagError, match="the prompt before passages is 40 tokens of the 64 that it reads"):
        OnnxEmbedder(model, passage_prompt="cats " * 40)


def test_a_passage_leaves_room_for_its_prompt(model: Path) -> None:
    embedder = OnnxEmbedder(model, passage_prompt="cats " * 10)
    assert embedder.tokens_max == small_bert.PLACES - 10
    assert embedder.count_tokens("dogs wag") == 2, "the prompt aside"


def test_a_pooling_that_leaves_prompts_out_is_refused_with_one(folder: Path) -> None:
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    model = small_bert.write(folder / "instructor", pooling=pooling)
    assert OnnxEmbedder(model).embed(["cats"]).shape == (1, small_bert.WIDTH)
    with pytest.raises(RagError, match="its pooling leaves prompts out"):
        OnnxEmbedder(model, query_prompt="cats ")


def test_an_index_asks_with_the_prompt_of_questions(folder: Path, model: Path) -> None:
    embedder = OnnxEmbedder(model, query_prompt=QUERY, passage_prompt=PASSAGE)
    with Index.build(folder / "index", [Document("cats", CATS), Document("dogs", DOGS)], embedder) as index:
        hits = {hit.document: hit.similarity for hit in index.search("cats", 2).hits}
    question = wanted(model, f"{QUERY}cats")
    for name, text in (("cats", CATS), ("dogs", DOGS)):
        assert abs(hits[name] - question @ wanted(model, PASSAGE + text)) < ROUNDED


def test_commands_take_from_the_index_what_it_was_made_with(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(model, {"query": "cats ", "passage": "content "})
    made = ["--embedder", f"onnx:{model}", "--query-prompt", QUERY]
    run(capsys, "index", str(folder / "notes"), *made)
    found = json.loads(run(capsys, "ask", "cats", "--json"))["hits"]
    similarity = wanted(model, f"{QUERY}cats") @ wanted(model, f"content {found[0]['text']}")
    assert abs(found[0]["similarity"] - similarity) < ROUNDED
    # What the folder says by now changes nothing of what was embedded, also where the embedder is named again.
    say(model, {"query": "they ", "passage": "purr "})
    for more in ([], ["--embedder", f"onnx:{model}"]):
        again = json.loads(run(capsys, "ask", "cats", "--json", *more))["hits"]
        assert again == found
        run(capsys, "index", str(folder / "notes"), *more)
    told = run(capsys, "index", str(folder / "notes"), "--passage-prompt", "other ", code=2)
    assert f"it was made with {QUERY!r} before questions and 'content ' before passages, and now there is" in told
    assert "'other ' before passages; open it with those that it was made with" in told


def test_in_python_an_index_refuses_other_prompts_and_other_dimensions(folder: Path, model: Path) -> None:
    say(model, {"query": "cats "})
    Index.build(folder / "index", [Document("cats", CATS)], OnnxEmbedder(model)).close()
    say(model, {"query": "dogs "})
    with pytest.raises(RagError, match=r"made with 'cats ' before questions.*and now there is 'dogs ' before"):
        Index(folder / "index", OnnxEmbedder(model))
    with Index(folder / "index", OnnxEmbedder(model, query_prompt="cats ")) as index:
        assert index.search("purr").hits
    say(model, {"query": "cats "})
    write_layer(model)
    with pytest.raises(RagError, match=r"its embeddings have 64 dimensions, and those of onnx.* now have 8"):
        Index(folder / "index", OnnxEmbedder(model))


def write_layer(model: Path) -> None:
    kinds = (("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"))
    modules = [{"path": path, "type": f"sentence_transformers.models.{kind}"} for path, kind in kinds]
    (model / "modules.json").write_text(json.dumps(modules))
    for path, said in (("1_Pooling", {"pooling_mode": "mean"}), ("2_Dense", {"bias": False})):
        (model / path).mkdir()
        (model / path / "config.json").write_text(json.dumps(said))
    small_bert.write_weights(model / "2_Dense/model.safetensors", 1, {"linear.weight": (8, small_bert.WIDTH)})


def test_an_index_of_before_there_were_prompts_is_opened_without(
    folder: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "index", str(folder / "notes"), "--embedder", f"onnx:{model}")
    found = run(capsys, "ask", "cats", "--json")
    with sqlite3.connect(folder / "data/scotfree/rag/passages.sqlite") as file:
        (said,) = file.execute("select value from setting where name = 'embedder'").fetchone()
        known = {key: value for key, value in json.loads(said).items() if key in ("name", "digest")}
        file.execute("update setting set value = ? where name = 'embedder'", [json.dumps(known).encode()])
    file.close()
    say(model, {"query": QUERY, "passage": PASSAGE})
    assert json.loads(run(capsys, "ask", "cats", "--json"))["hits"] == json.loads(found)["hits"]


@pytest.mark.parametrize("said", ["{", "[]", '{"name": "x"}', '{"name": "x", "digest": "zz"}'])
def test_what_an_index_says_of_its_embedder_may_be_damaged(
    folder: Path, model: Path, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "index", str(folder / "notes"), "--embedder", f"onnx:{model}")
    with sqlite3.connect(folder / "data/scotfree/rag/passages.sqlite") as file:
        file.execute("update setting set value = ? where name = 'embedder'", [said.encode()])
    file.close()
    assert "what it says of its embedder is damaged; remove its folder" in run(capsys, "ask", "cats", code=2)


class Plain:
    """Somebody's own embedder, which knows of no prompts."""

    name, digest, dimensions, tokens_max = "plain", b"0" * 32, 2, 16

    def embed(self, texts: Sequence[str]) -> Vectors:
        return np.array([[1, 0] if "cats" in text else [0, 1] for text in texts], np.float32).reshape(-1, 2)

    def count_tokens(self, text: str) -> int:
        return len(text.split())


def test_who_has_no_way_for_questions_embeds_them_as_passages(folder: Path) -> None:
    plain = Plain()
    assert np.array_equal(embed_questions(plain, ["cats"]), plain.embed(["cats"]))
    with Index.build(folder / "index", [Document("cats", CATS), Document("cat", "cats")], plain) as index:
        assert index.search("cats", 1).hits[0].similarity == pytest.approx(1, abs=1e-3)


def test_what_stands_around_an_embedder_passes_questions_on(model: Path) -> None:
    embedder = OnnxEmbedder(model, query_prompt=QUERY, passage_prompt=PASSAGE)
    question, passage = embedder.embed_questions(["cats"])[0], embedder.embed(["cats"])[0]
    assert not np.allclose(question, passage, atol=1e-3)
    known = Known(embedder, ["cats"], passage[None])
    for around in (known, Handed(embedder)):
        assert around.prompts == embedder.prompts
        assert np.allclose(embed_questions(around, ["cats", "cats"]), [question] * 2, atol=1e-5)
        assert np.allclose(around.embed(["cats"]), [passage], atol=1e-5)
    framework = Adapted("theirs", lambda texts: [[1.0, 0.0] for _ in texts], lambda _: [0.0, 2.0])
    assert ask(framework, "cats").tolist() == [0, 1] == embed_questions(framework, ["x"])[0].tolist()
    assert framework.embed(["cats"]).tolist() == [[1, 0]]
