"""`scot rag eval --judge`: answers are written from what each mode finds, graded, and asked for once.

The endpoint is a real server on the loopback address that plays both models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from language_server import MODEL, Asked, LanguageServer, chunk, end, language_server
from test_rag_eval import CORPUS, beir

from scotfree.rag import Endpoint, RagError, cli
from scotfree.rag.commands import judging, modelling
from scotfree.rag.evaluation.grading import KEPT, Exam, Grader, Models, grade_of
from scotfree.rag.generate.endpoint import KEY

JUDGE = "strict"
KEYS = {KEY: "sk-of-the-writer", judging.KEY: "sk-of-the-judge"}
ENVIRONMENT = (modelling.URL, modelling.NAME, judging.URL, judging.NAME, *KEYS)


def speaking(writer: Callable[[str], str], judge: Callable[[str], str]) -> Callable[[Asked], None]:
    """Both models, by what each says to a text."""

    def answering(asked: Asked) -> None:
        of = judge if asked.body["model"] == JUDGE else writer
        asked.begin()
        asked.event(chunk(content=of(asked.body["messages"][0]["content"])))
        asked.event(end())

    return answering


def write(text: str) -> str:
    """Says of a question how many strings there are, if a passage does."""
    return "Four strings [1]." if "four strings" in text else "Nobody knows."


def judge(text: str) -> str:
    """Likes what has a number in it."""
    answer = text.partition("Answer to be graded:")[2]
    return f"It has {'a' if 'Four' in answer else 'no'} number.\n**Grade: {9 if 'Four' in answer else 2}**"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LanguageServer]:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with language_server() as running:
        running.answering = speaking(write, judge)
        yield running


@pytest.fixture
def models(server: LanguageServer) -> Iterator[Models]:
    with (
        closing(Endpoint(server.url, MODEL, key="")) as writer,
        closing(Endpoint(server.url, JUDGE, key="")) as judging_,
    ):
        yield Models(writer, judging_)


def asked_of(server: LanguageServer, model: str) -> list[str]:
    return [body["messages"][0]["content"] for body in server.bodies if body["model"] == model]


KNOWN = Exam("How many strings has it?", ["A violin has four strings."], ["Of strings it has four."])
UNKNOWN = Exam("How many has a drum?", ["Drums are struck."], ["A drum has none."])


def test_the_judge_sees_question_answer_and_what_is_relevant(
    server: LanguageServer, models: Models, tmp_path: Path
) -> None:
    counted: list[int] = []
    found = Grader(models, tmp_path).grades([KNOWN, UNKNOWN], counted.append)
    assert (found.mean, found.graded, found.ungraded) == (5.5, 2, 0) and counted == [1, 1]
    assert found.error == pytest.approx(3.5)
    first, second = asked_of(server, MODEL)
    assert "[1]\nA violin has four strings." in first and "Of strings" not in first and "Drums" in second
    first, _ = asked_of(server, JUDGE)
    for part in (KNOWN.question, "Four strings [1].", "[1]\nOf strings it has four."):
        assert part in first
    assert "A violin" not in first, "what was found is not what is right"


def test_what_models_said_is_asked_for_once_and_by_model_and_text(
    server: LanguageServer, models: Models, tmp_path: Path
) -> None:
    first = Grader(models, tmp_path).grades([KNOWN, UNKNOWN, KNOWN])
    assert len(server.bodies) == 4 and first.graded == 3
    again = Grader(models, tmp_path).grades([KNOWN, UNKNOWN, KNOWN])
    assert len(server.bodies) == 4 and again == first
    other = Exam(KNOWN.question, [*KNOWN.found, "And a bow."], KNOWN.relevant)
    Grader(models, tmp_path).grades([other])
    assert len(server.bodies) == 5, "another answer was written, and it says the same"
    with closing(Endpoint(server.url, "third", key="")) as third:
        Grader(Models(third, models.judge), tmp_path).grades([KNOWN])
    assert [body["model"] for body in server.bodies[5:]] == ["third"]


def test_no_grade_is_none_and_is_asked_for_again(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    server.answering = speaking(write, lambda _: "I would rather not. Grade: 11")
    found = Grader(models, tmp_path).grades([KNOWN, UNKNOWN])
    assert (found.mean, found.error, found.graded, found.ungraded) == (None, None, 0, 2)
    server.answering = speaking(write, judge)
    found = Grader(models, tmp_path).grades([KNOWN])
    assert (found.mean, found.error, found.graded) == (9, None, 1)
    assert len(asked_of(server, MODEL)) == 2 and len(asked_of(server, JUDGE)) == 3


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ("Grade: 7", 7),
        ("It is right.\n\n**Grade:** 10", 10),
        ("grade = 0", 0),
        ("Grade: `4.5`/10", 4.5),
        ("I had thought Grade: 3, but no.\nGrade: 8.", 8),
        ("**Grade: 9**", 9),
        ("", None),
        ("7", None),
        ("Grade: -3", None),
        ("Grade: 11", None),
        ("Grade: 1000", None),
        ("Grade: ten", None),
        ("Grade: 3\nGrade: none", 3),
    ],
)
def test_the_last_grade_counts(said: str, grade: float | None) -> None:
    assert grade_of(said) == grade


def test_what_breaks_off_goes_on_where_it_was(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    def ill(asked: Asked) -> None:
        if "drum" in asked.body["messages"][0]["content"]:
            asked.refuse(503, {"error": {"message": "loading"}})
        else:
            speaking(write, judge)(asked)

    server.answering = ill
    with pytest.raises(RagError, match="HTTP 503: loading"):
        Grader(models, tmp_path).grades([KNOWN, UNKNOWN])
    server.answering = speaking(write, judge)
    server.bodies.clear()
    assert Grader(models, tmp_path).grades([KNOWN, UNKNOWN]).graded == 2
    assert len(server.bodies) == 2, "of the second alone"


def test_answers_that_are_no_text_are_graded(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    server.answering = speaking(lambda _: "Four \ud800", judge)
    assert Grader(models, tmp_path).grades([KNOWN]).mean == 9


def test_a_damaged_file_of_replies_is_named(models: Models, tmp_path: Path) -> None:
    (tmp_path / KEPT).write_bytes(b"no database, but as long as a header of one" * 100)
    with pytest.raises(RagError, match=rf"{KEPT}: file is not a database; make room, or remove the file"):
        Grader(models, tmp_path).grades([KNOWN])


def flags(server: LanguageServer, *others: str) -> list[str]:
    return ["--llm", server.url, "--model", MODEL, "--judge", server.url, "--judge-model", JUDGE, *others]


def evaluated(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert cli.main(["eval", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_user_has_answers_graded(
    server: LanguageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
    folder, kept = str(beir(tmp_path / "music")), str(tmp_path / "kept")
    words = [folder, "--index", kept, "--mode", "ours", "--mode", "flat"]
    found = evaluated(capsys, *words, *flags(server))
    assert found["grading"] | {"exact": 0} == {"writer": MODEL, "judge": JUDGE, "exact": 0, "broke_off": ""}
    # All three documents are shown for both questions, in another order; violin's passage has the number.
    wanted = {"mean": 9, "error": 0, "graded": 2, "ungraded": 0}
    assert found["grading"]["exact"] == wanted and [one["grades"] for one in found["modes"]] == [wanted, wanted]
    trials, asked = 2, 4
    assert len(server.bodies) == trials + asked, "what the modes find is the same"
    relevant = {
        re.findall(r"\[\d\]\n(.+)", text.partition("Question:")[0])[0] for text in asked_of(server, JUDGE)[1:]
    }
    assert relevant == {CORPUS[0]["title"], CORPUS[1]["text"]}, "the documents that were judged to be relevant"
    said = dict(zip((body["model"] for body in server.bodies), server.keys, strict=True))
    assert said == {MODEL: f"Bearer {KEYS[KEY]}", JUDGE: f"Bearer {KEYS[judging.KEY]}"}
    assert cli.main(["eval", *words, *flags(server)]) == 0
    printed = capsys.readouterr().out
    assert f"{MODEL} writes an answer from the passages found, and {JUDGE} grades it" in printed
    assert re.search(r"answers' grade, 0 to 10 +9\.00 \+- 0\.00 +9\.00 \+- 0\.00 +9\.00 \+- 0\.00", printed)
    assert re.search(r"not graded +0 of 2 +0 of 2 +0 of 2", printed)
    assert not any(key in printed for key in KEYS.values())


def test_without_a_judge_nothing_is_written_and_the_table_says_so(
    server: LanguageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = str(beir(tmp_path / "music")), str(tmp_path / "kept")
    monkeypatch.setenv(modelling.URL, server.url)
    monkeypatch.setenv(modelling.NAME, MODEL)
    assert cli.main(["eval", folder, "--index", kept]) == 0
    printed = capsys.readouterr().out
    assert "answers in words: not run, for there is no judge; name one with --judge" in printed
    assert "grade, 0 to 10" not in printed
    found = evaluated(capsys, folder, "--index", kept, *flags(server)[4:], "--no-llm")
    assert found["grading"] is None and not server.bodies
    monkeypatch.setenv(judging.URL, server.url)
    monkeypatch.setenv(judging.NAME, JUDGE)
    assert evaluated(capsys, folder, "--index", kept)["grading"]["writer"] == MODEL and server.bodies


def test_what_was_measured_is_shown_if_a_model_fails_later(
    server: LanguageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = str(beir(tmp_path / "music")), str(tmp_path / "kept")

    def after_the_trial(asked: Asked) -> None:
        if len(server.bodies) <= 2:
            speaking(write, judge)(asked)
        else:
            asked.refuse(503, {"error": {"message": "too hot"}})

    server.answering = after_the_trial
    assert cli.main(["eval", folder, "--index", kept, *flags(server)]) == 2
    printed = capsys.readouterr()
    assert "nDCG@10" in printed.out and re.search(r"answers' grade, 0 to 10 +- +-\n", printed.out)
    assert "it broke off: ask the language model at" in printed.out
    assert "too hot" in printed.err and "the same command goes on with the answers that are missing" in printed.err


def test_models_that_cannot_be_asked_are_named_before_anything_is_embedded(
    server: LanguageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, kept = str(beir(tmp_path / "music")), str(tmp_path / "kept")
    judge_ = ["--judge", server.url, "--judge-model", JUDGE]

    def refusing(asked: Asked) -> None:
        asked.refuse(401, {"error": {"message": "no key"}})

    server.answering = refusing
    for words, said in (
        (["--llm", server.url, "--model", MODEL], "it is not said who grades them; name a judge with --judge"),
        (judge_[2:], "it is not said who grades them; name a judge with --judge"),
        (judge_[:2], "it is not said by which of its models; name it with --judge-model"),
        (judge_, "it is not said who writes them; name a model with --llm or --gguf"),
        (["--judge", "nowhere", "--judge-model", JUDGE], "the address of the language model, nowhere: it is none"),
        (flags(server), f"it wants a key; put its key into {KEY}"),
    ):
        assert cli.main(["eval", folder, "--index", kept, *words]) == 2
        assert said in capsys.readouterr().err
    server.answering = lambda asked: (refusing if asked.body["model"] == JUDGE else speaking(write, judge))(asked)
    assert cli.main(["eval", folder, "--index", kept, *flags(server)]) == 2
    assert f"it wants a key; put its key into {judging.KEY}" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()
