"""`scot rag ask` with a language model, as a user has it: the answer, its sources, its time, what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from language_server import MODEL, WORDS, Asked, LanguageServer, chunk, language_server

from bench.words import Words
from scotfree.rag import Document, Index, cli
from scotfree.rag.commands import modelling, opening
from scotfree.rag.generate.endpoint import KEY

ANSWER = "".join(WORDS)
QUESTION = "which has strings?"


@pytest.fixture
def server() -> Iterator[LanguageServer]:
    with language_server() as running:
        yield running


@pytest.fixture(autouse=True)
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in (modelling.URL, modelling.NAME, KEY):
        monkeypatch.delenv(name, raising=False)
    documents = [Document("violin", "a violin has four strings"), Document("drum", "drums are struck")]
    Index.build(opening.default(), documents, Words()).close()


def test_the_answer_stands_above_its_sources(server: LanguageServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL, "--count", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"{ANSWER}\n\n[1] violin (letter 0)\n[2] drum (letter 0)\n"
    assert "prefill" in printed.err and "decode" in printed.err
    assert "first token after" in printed.err and "retrieval" in printed.err
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL, "--json", "--count", "1"]) == 0
    answer = json.loads(capsys.readouterr().out)
    written = answer["written"]
    assert (written["text"], written["shown"], written["model"], written["ended"]) == (ANSWER, 1, MODEL, "stop")
    assert written["prefill_ns"] == answer["stages_ns"]["prefill"] > 0
    before = sum(ns for name, ns in answer["stages_ns"].items() if name not in ("prefill", "decode"))
    assert written["retrieval_ns"] == before > 0


def test_the_environment_names_it_and_a_flag_says_no(
    server: LanguageServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(modelling.URL, server.url)
    monkeypatch.setenv(modelling.NAME, MODEL)
    assert cli.main(["ask", QUESTION]) == 0
    assert capsys.readouterr().out.startswith(ANSWER)
    assert cli.main(["ask", QUESTION, "--no-llm"]) == 0
    assert capsys.readouterr().out.startswith("1. violin (")
    assert len(server.bodies) == 1


def test_without_a_passage_nobody_is_asked(server: LanguageServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL, "--where", "kind=none"]) == 0
    assert capsys.readouterr().out.startswith("nothing found; ") and server.bodies == []


def test_what_steers_a_terminal_is_shown_as_its_number(
    server: LanguageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def steers(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(content="red \x1b[31m"))

    server.answering = steers
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("red \\x1b[31m\n\n[1] violin"), "what came before it broke off stays"
    assert "broke off after 9 letters; ask again" in printed.err


def test_what_was_found_is_shown_if_the_model_says_nothing(
    server: LanguageServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answering = lambda asked: asked.refuse(500, "tired")
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("1. violin (") and "it answers HTTP 500" in printed.err
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["hits"][0]["document"] == "violin"


def test_what_is_wrong_is_refused(
    server: LanguageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["ask", QUESTION, "--llm", server.url]) == 2
    assert "it is not said which of its models; name it with --model" in capsys.readouterr().err
    assert cli.main(["ask", QUESTION, "--gguf", str(tmp_path / "absent")]) == 2
    assert "No such file or directory; name a GGUF file" in capsys.readouterr().err
    for words in (["--llm", server.url, "--no-llm"], ["--letters", "3"], ["--patience", "soon"]):
        with pytest.raises(SystemExit):
            cli.main(["ask", QUESTION, *words])
    assert "soon is no time" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "httpx2", None)
    monkeypatch.delitem(sys.modules, "scotfree.rag.generate.endpoint")
    monkeypatch.delattr("scotfree.rag.generate.endpoint")
    assert cli.main(["ask", QUESTION, "--llm", server.url, "--model", MODEL]) == 2
    assert "the package httpx2 is not installed; pip install 'scotfree[rag]'" in capsys.readouterr().err
