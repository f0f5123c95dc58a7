"""A model in a file: it is loaded, answers as an endpoint does, and what is no model is refused."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from scotfree.rag import Answer, Endpoint, Hit, LocalModel, RagError, write_answer
from scotfree.rag.generate.model import Piece

pytest.importorskip("xllamacpp", reason="no xllamacpp (pip install 'scotfree[gguf]')")
pytest.importorskip("gguf", reason="no gguf, which writes the model (pip install gguf)")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from bench import drawn_model  # noqa: PLC0415 - it needs what is looked for above

    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    drawn_model.write(path, drawn_model.Shape(width=32, layers=1, heads=2, key_heads=2, inner=32))
    return path


@pytest.fixture
def model(file: Path) -> Iterator[LocalModel]:
    loaded = LocalModel(file, context_tokens=2048, threads=1)
    yield loaded
    loaded.close()


def test_it_answers_from_a_file(model: LocalModel) -> None:
    found = Answer({"score": 1}, [Hit(1, "A violin has four strings.", "violin", 0, 0.5, {})])
    pieces = list(write_answer(model, "How many strings?", found, tokens_max=12))
    assert len(pieces) == 12 and set("".join(pieces)) <= set("abcdefghijklmnop")
    assert found.written and found.written.ended == "length" and found.written.model == "tiny.gguf"
    assert list(found.stages_ns) == ["score", "prefill", "decode"]
    again = list(write_answer(model, "How many strings?", found, tokens_max=12))
    assert again == pieces, "without chance the same"
    other = list(write_answer(model, "Something else entirely?", found, tokens_max=12))
    assert other != pieces, "it reads what it is asked"


def test_after_one_that_is_left_comes_the_next(model: LocalModel) -> None:
    pieces = model.stream("a prompt", 100_000)
    assert isinstance(next(pieces), Piece)
    pieces.close()
    assert len(list(model.stream("a prompt", 3))) == 4


def test_a_prompt_that_is_too_long_is_told(model: LocalModel) -> None:
    with pytest.raises(RagError, match=r"exceeds the available context size.*; show it less: --letters"):
        next(model.stream("x" * 5000, 5))


def test_others_of_this_machine_do_not_use_it(model: LocalModel) -> None:
    address = urlsplit(model._server.listening_address)
    assert address.hostname == "127.0.0.1"
    with pytest.raises(RagError, match="it wants a key"):
        next(Endpoint(f"{address.geturl()}/v1", "tiny.gguf", key="").stream("hello", 5))
    model.close()
    with socket.socket() as asked, pytest.raises(ConnectionRefusedError):
        asked.connect((address.hostname, address.port))


def test_what_is_no_model_is_refused(file: Path, tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    (tmp_path / "cut.gguf").write_bytes(file.read_bytes()[:50_000])
    for path, said in (
        (tmp_path / "absent.gguf", "No such file"),
        (tmp_path, "Is a directory"),
        (tmp_path / "page.gguf", "it is no GGUF file"),
        (tmp_path / "cut.gguf", "llama.cpp cannot load it: it is cut short"),
    ):
        with pytest.raises(RagError, match=said) as raised:
            LocalModel(path)
        assert str(path) in raised.value.problem


def test_without_the_binding_it_is_said_what_to_install(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(RagError, match=r"pip install 'scotfree\[rag,gguf\]'"):
        LocalModel(file)
