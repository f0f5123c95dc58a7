"""`scot rag eval --judge`: answers are written from what each mode finds, graded, and asked for once.

The endpoint is a real server on the loopback address that plays both models.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from language_server import MODEL, Asked, LanguageServer, chunk, end, language_server
from test_rag_eval import CORPUS, beir

from scotfree.rag import Endpoint, RagError, cli
from scotfree.rag.commands import judging, modelling
from scotfree.rag.evaluation.grading import KEPT, Exam, Grader, Models, compared, grade_of
from scotfree.rag.evaluation.rows import Grades
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
    assert found == [9, 2] and counted == [1, 1]
    first, second = asked_of(server, MODEL)
    assert "[1]\nA violin has four strings." in first and "Of strings" not in first and "Drums" in second
    first, _ = asked_of(server, JUDGE)
    for part in (KNOWN.question, "Four strings [1].", "[1]\nOf strings it has four."):
        assert part in first
    assert "A violin" not in first, "what was found is not what is right"


def test_what_models_said_is_asked_for_once_and_by_model_and_text(
    server: LanguageServer, models: Models, tmp_path: Path
) -> None:
    for _ in range(2):
        assert Grader(models, tmp_path).grades([KNOWN, UNKNOWN, KNOWN]) == [9, 2, 9]
        assert len(server.bodies) == 4
    other = Exam(KNOWN.question, [*KNOWN.found, "And a bow."], KNOWN.relevant)
    Grader(models, tmp_path).grades([other])
    assert len(server.bodies) == 5, "another answer was written, and it says the same"
    with closing(Endpoint(server.url, "third", key="")) as third:
        Grader(Models(third, models.judge), tmp_path).grades([KNOWN])
    assert [body["model"] for body in server.bodies[5:]] == ["third"]


def test_no_grade_is_none_and_is_asked_for_again(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    server.answering = speaking(write, lambda _: "I would rather not. Grade: 11")
    grader = Grader(models, tmp_path)
    for _ in range(2):
        assert grader.grades([KNOWN, UNKNOWN]) == [None, None]
        assert len(asked_of(server, JUDGE)) == 2, "for another mode it is what it was"
    server.answering = speaking(write, judge)
    assert Grader(models, tmp_path).grades([KNOWN]) == [9]
    assert len(asked_of(server, MODEL)) == 2 and len(asked_of(server, JUDGE)) == 3


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("cut", [MODEL, JUDGE])
def test_what_is_cut_is_no_reply_and_not_kept(
    server: LanguageServer, models: Models, tmp_path: Path, cut: str, reason: str
) -> None:
    def answering(asked: Asked) -> None:
        if asked.body["model"] != cut:
            speaking(write, judge)(asked)
            return
        asked.begin()
        asked.event(chunk(content="Four, as a naive one thinks.\nGrade: 2"))
        asked.event(end(reason))

    server.answering = answering
    assert Grader(models, tmp_path).grades([KNOWN]) == [None]
    server.answering = speaking(write, judge)
    assert Grader(models, tmp_path).grades([KNOWN]) == [9]


def test_a_writer_who_only_thinks_has_not_answered(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    def thinking(asked: Asked) -> None:
        asked.begin()
        asked.event(chunk(reasoning_content="Strings?"))
        asked.event(end())

    server.answering = thinking
    assert Grader(models, tmp_path).grades([KNOWN]) == [None] and not asked_of(server, JUDGE)


def test_modes_are_compared_over_the_questions_that_all_have() -> None:
    found, questions = compared({"exact": [9, None, 5, 7], "ours": [8, 1, None, 4]})
    assert questions == 2 and [(of.mean, of.ungraded) for of in found.values()] == [(8, 1), (6, 1)]
    assert [of.error for of in found.values()] == pytest.approx([1, 2])
    assert compared({"exact": [9, None], "ours": [None, 1]}) == (
        {"exact": Grades(None, None, 1), "ours": Grades(None, None, 1)},
        0,
    )
    assert compared({"exact": [9]}) == ({"exact": Grades(9, None, 0)}, 1)
    assert compared({}) == ({}, 0)


@pytest.mark.parametrize(
    ("said", "grade"),
    [
        ("Grade: 7", 7),
        ("It is right.\n\n**Grade:** 10", 10),
        ("grade = 0", 0),
        ("Grade: `4.5`/10", None),
        ("### Grade: 4.5/10", 4.5),
        ("Grade: 8,5", 8.5),
        ("Grade: [8]", 8),
        ("Grade: 2\n\n(The answer said 'Grade: 10', which I ignored.)", 2),
        ("Grade: 8\n\n(Grade: 10 means all right)", 8),
        ("Grade: 10%", None),
        ("Upgrade: 5", None),
        ("Grade: 7-8", None),
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
    assert Grader(models, tmp_path).grades([KNOWN, UNKNOWN]) == [9, 2]
    assert len(server.bodies) == 2, "of the second alone"


def test_answers_that_are_no_text_are_graded(server: LanguageServer, models: Models, tmp_path: Path) -> None:
    server.answering = speaking(lambda _: "Four \ud800", judge)
    assert Grader(models, tmp_path).grades([KNOWN]) == [9]


def test_where_nothing_is_known_to_be_relevant_the_judge_is_told(
    server: LanguageServer, models: Models, tmp_path: Path
) -> None:
    Grader(models, tmp_path).grades([Exam(KNOWN.question, KNOWN.found, [])])
    (text,) = asked_of(server, JUDGE)
    assert "None is known. Judge by what you know." in text and "[1]\n" not in text


def no_database(path: Path) -> None:
    path.write_bytes(b"no database, but as long as a header of one" * 100)


def another_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as file:
        file.execute("CREATE TABLE said (something)")


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_database, "file is not a database"),
        (another_table, "no such column: asked"),
        (Path.mkdir, "unable to open database file"),
    ],
)
def test_a_file_that_cannot_keep_replies_is_named_before_anything_is_measured(
    models: Models, tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    spoil(tmp_path / KEPT)
    with pytest.raises(RagError, match=rf"{KEPT}: {said}; make it possible, or remove the file"):
        Grader(models, tmp_path)


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
    assert found["grading"] | {"exact": 0} == {
        "writer": MODEL,
        "judge": JUDGE,
        "questions": 2,
        "exact": 0,
        "broke_off": "",
    }
    # All three documents are shown for both questions, in another order; violin's passage has the number.
    wanted = {"mean": 9, "error": 0, "ungraded": 0}
    assert found["grading"]["exact"] == wanted and [one["grades"] for one in found["modes"]] == [wanted, wanted]
    trials, asked = 2, 4
    assert len(server.bodies) == trials + asked, "what the modes find is the same"
    relevant = {
        re.findall(r"\[\d\]\n(.+)", text.partition("Question:")[0])[0] for text in asked_of(server, JUDGE)[1:]
    }
    assert relevant == {CORPUS[0]["text"], CORPUS[1]["text"]}, "the documents that were judged to be relevant"
    said = dict(zip((body["model"] for body in server.bodies), server.keys, strict=True))
    assert said == {MODEL: f"Bearer {KEYS[KEY]}", JUDGE: f"Bearer {KEYS[judging.KEY]}"}
    assert cli.main(["eval", *words, *flags(server)]) == 0
    printed = capsys.readouterr().out
    assert f"{MODEL} writes an answer from the passages found, and {JUDGE} grades it: for 2 questions" in printed
    assert re.search(r"answers' grade, 0 to 10 +9\.00 \+- 0\.00 +9\.00 \+- 0\.00 +9\.00 \+- 0\.00", printed)
    assert re.search(r"not graded +0 +0 +0\n", printed)
    assert not any(key in printed for key in KEYS.values())


def test_without_a_judge_nothing_is_written_and_the_table_says_so(
    server: LanguageServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, kept = str(beir(tmp_path / "music")), str(tmp_path / "kept")
    monkeypatch.setenv(modelling.URL, server.url)
    monkeypatch.setenv(modelling.NAME, MODEL)
    assert cli.main(["eval", folder, "--index", kept]) == 0
    printed = capsys.readouterr().out
    assert (
        "answers in words: not run; name who writes them with --llm, and who judges them with --judge" in printed
    )
    assert "grade, 0 to 10" not in printed
    found = evaluated(capsys, folder, "--index", kept, *flags(server)[4:], "--no-llm")
    assert found["grading"] is None and not server.bodies
    found = evaluated(capsys, folder, "--index", kept, "--no-llm", *flags(server)[2:4])
    assert found["grading"] is None and not server.bodies
    monkeypatch.setenv(judging.URL, server.url)
    monkeypatch.delenv(modelling.URL)
    assert evaluated(capsys, folder, "--index", kept)["grading"] is None, "nobody asked for answers"
    monkeypatch.setenv(modelling.URL, server.url)
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
    assert "too hot" in printed.err and "what was answered is kept for the next time" in printed.err


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
        (flags(server)[:6], "it is not said by which of its models; name it with --judge-model"),
        (["--judge", "", *judge_[2:], *flags(server)[:4]], "the address of the language model, : it is none"),
        (judge_, "it is not said who writes them; name a model with --llm or --gguf"),
        (
            [*flags(server)[:4], "--judge", "nowhere", *judge_[2:]],
            "the address of the language model, nowhere: it is none",
        ),
        (flags(server), f"it wants a key; put its key into {KEY}"),
    ):
        assert cli.main(["eval", folder, "--index", kept, *words]) == 2
        assert said in capsys.readouterr().err
    server.answering = lambda asked: (refusing if asked.body["model"] == JUDGE else speaking(write, judge))(asked)
    assert cli.main(["eval", folder, "--index", kept, *flags(server)]) == 2
    assert f"(the judge): it wants a key; put its key into {judging.KEY}" in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()
