"""What stands between sentence-transformers and an index.

The library itself is not here: torch takes gigabytes. In its place is an object with the few methods that are used
of it, so that these tests say nothing of the library, only of what is made of its answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from bench.words import DIMENSIONS, Words
from scotfree.rag import RagError
from scotfree.rag.embed import by_name, torch_embedder


class Tensor:
    """Numbers of a model."""

    def __init__(self, numbers: list[float]) -> None:
        self._numbers = np.array(numbers)

    def float(self) -> Any:
        return SimpleNamespace(numpy=lambda force: self._numbers.astype(np.float32))


class Model:
    """A model that embeds as `Words` does."""

    weights: tuple[float, ...] = (1.0, 2.0)
    words = "cats dogs"
    pooling = "mean"
    max_seq_length: int | None = 64
    device = "cuda:0"
    prompts: ClassVar[dict[str, str]] = {}
    default_prompt_name: str | None = None

    def __init__(self, name: str, device: str | None, local_files_only: bool) -> None:
        if name == "absent":
            raise OSError("absent is not here\nand more")
        self.asked = {"name": name, "device": device, "local_files_only": local_files_only}
        self.tokenizer = SimpleNamespace(
            encode=self._tokens, backend_tokenizer=SimpleNamespace(to_str=self._rules)
        )
        self._padding = 0

    def __iter__(self) -> Iterator[Any]:
        return iter([SimpleNamespace(get_config_dict=lambda: {"pooling_mode": self.pooling})])

    def state_dict(self) -> dict[str, Tensor]:
        return {"b": Tensor([*self.weights]), "a": Tensor([0.5])}

    def encode(
        self,
        texts: list[str],
        batch_size: int,
        normalize_embeddings: bool,
        show_progress_bar: bool,
        prompt: str | None = None,
    ) -> Any:
        assert normalize_embeddings and not show_progress_bar and batch_size > 0
        # As the library does, whose tokenizer remembers how far it filled up.
        self._padding += 1
        if prompt is None:
            prompt = self.prompts[self.default_prompt_name] if self.default_prompt_name else ""
        return Words().embed([prompt + text for text in texts]).astype(np.float64)

    def _tokens(self, text: str, add_special_tokens: bool, verbose: bool) -> list[int]:
        assert not add_special_tokens and not verbose
        return list(range(len(text.split())))

    def _rules(self) -> str:
        return json.dumps({"words": self.words, "padding": self._padding, "truncation": self._padding})


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> type[Model]:
    here = type("Here", (Model,), {})
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=here))
    return here


def made(name: str = "some/model", **how: Any) -> Any:
    return by_name(f"sentence-transformers:{name}", **how)


def test_it_gives_what_the_library_gives(library: type[Model]) -> None:
    embedder, texts = made(), ["cats purr", "dogs"]
    vectors = embedder.embed(texts)
    assert vectors.dtype == np.float32 and np.abs(vectors - Words().embed(texts)).max() < 1e-6
    assert (embedder.dimensions, embedder.tokens_max, embedder.device) == (DIMENSIONS, 64, "CUDA")
    assert embedder.count_tokens("cats purr") == 2 and embedder.embed([]).shape == (0, DIMENSIONS)
    library.max_seq_length = None
    assert made().tokens_max == 256


def test_prompts_are_the_models_own_unless_others_are_said(library: type[Model]) -> None:
    plain = made().digest
    library.prompts = {"query": "ask ", "passage": "read ", "none": "default "}
    library.default_prompt_name = "none"
    for embedder, query, passage in (
        (made(), "ask ", "read "),
        (made(query_prompt="other "), "other ", "read "),
        (made(query_prompt="", passage_prompt=""), "", ""),
    ):
        assert np.abs(embedder.embed(["cats"]) - Words().embed([f"{passage}cats"])).max() < 1e-6
        assert np.abs(embedder.embed_questions(["cats"]) - Words().embed([f"{query}cats"])).max() < 1e-6
        assert (embedder.digest == plain) is (query == passage == "")
    library.prompts = {"none": "default "}
    assert made().prompts.query == made().prompts.passage == "default "


def test_a_folder_is_remembered_by_its_place(
    library: type[Model], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert made("model").name == f"sentence-transformers:{tmp_path}/model"
    assert made().name == "sentence-transformers:some/model"


def test_where_it_runs_and_whether_it_may_fetch_is_said_to_the_library(library: type[Model]) -> None:
    asked = made(device="cuda", is_local_only=True)._model.asked
    assert asked == {"name": "some/model", "device": "cuda", "local_files_only": True}
    assert made()._model.asked == {"name": "some/model", "device": None, "local_files_only": False}


@pytest.mark.parametrize(
    ("what", "value"),
    [("weights", (1.0, 3.0)), ("words", "cats"), ("pooling", "cls"), ("max_seq_length", 32)],
)
def test_what_decides_the_vectors_decides_the_digest(library: type[Model], what: str, value: Any) -> None:
    embedder = made()
    embedder.embed(["changes how far the tokenizer fills up"])
    assert torch_embedder._digest(embedder._model) == made().digest == embedder.digest
    setattr(library, what, value)
    assert made().digest != embedder.digest


def test_a_model_that_is_not_there_is_told_in_one_line(library: type[Model]) -> None:
    with pytest.raises(RagError, match="embed with the model absent: absent is not here; name another"):
        made("absent")
