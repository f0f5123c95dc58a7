"""`scot rag` as a user has it: a folder is indexed, asked, changed, indexed again."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from unreadable import refuse

from bench.words import Words
from scotfree import rag
from scotfree.rag import cli
from scotfree.rag.choosing import Wanted
from scotfree.rag.commands import summary
from scotfree.rag.commands.reading import Reader
from scotfree.rag.commands.sized import Sized

TEXTS = {
    "logs/rotate.md": "# Log rotation\n\nlogrotate compresses old log files and removes those beyond a number.",
    "logs/journal.txt": "The journal is bounded by SystemMaxUse, so that it never fills the disk.",
    "music/violin.html": "<html><body><p>A violin has four strings and is played with a bow.</p></body></html>",
    "music/notes.txt": "Sonatas are written for one or two instruments.",
    "data.bin": "\0\1\2",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "docs"


def test_a_question_is_answered_with_its_source(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", str(folder), "--smallest"]) == 0
    told = capsys.readouterr().err
    assert "4 files added" in told and "4 passages embedded, 4 in all" in told
    assert "files that are no documents: 1" in told and "it is no text" in told
    assert cli.main(["ask", "which instrument has strings?", "--count", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith(f"1. {folder}/music/violin.html (") and "four strings" in printed.out
    assert "2. " in printed.out and "3. " not in printed.out
    assert "passages estimated" in printed.err and "regenerate" in printed.err
    assert cli.main(["ask", "keep logs from filling the disk", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert {hit["document"] for hit in answer["hits"][:2]} == {
        f"{folder}/logs/rotate.md",
        f"{folder}/logs/journal.txt",
    }
    assert answer["stages_ns"]["embed query"] > 0 and answer["regenerated"] <= 4


def test_a_question_can_be_narrowed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", str(folder), "--quiet"]) == 0
    assert cli.main(["ask", "what fills the disk", "--where", "suffix=.md"]) == 0
    assert "rotate.md" in (out := capsys.readouterr().out) and "2. " not in out
    assert cli.main(["ask", "SystemMaxUse", "--count", "1", "--words"]) == 0
    assert "journal.txt" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        cli.main(["ask", "x", "--where", "suffix"])
    assert "suffix is no KEY=VALUE" in capsys.readouterr().err


def test_indexing_again_embeds_only_what_changed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["index", str(folder), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    (folder / "music/notes.txt").unlink()
    (folder / "music/drums.txt").write_text("Drums are struck with sticks.")
    assert cli.main(["index", str(folder)]) == 0
    told = capsys.readouterr().err
    assert "1 file added, 0 changed, 1 removed, 3 as they were; 1 passage embedded, 4 in all" in told
    # Another folder's documents stay.
    assert cli.main(["index", str(folder / "logs")]) == 0
    assert "0 removed, 2 as they were; 0 passages embedded, 4 in all" in capsys.readouterr().err


def test_what_is_as_it_was_is_said_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "link").symlink_to(folder / "logs")
    (folder / "music/bad.md").write_text("---\ntitle: a: b\n---\nCellos are larger.")
    again = "as before: files that are no documents: 1, files with front matter that is left as text: 1, "
    again += "links to folders that were not followed: 1\n"
    for is_news in (True, False):
        assert cli.main(["index", str(folder)]) == 0
        told = capsys.readouterr().err
        assert ("links to folders that were not followed: 1\n  1: name what they lead to, as" in told) == is_news
        assert ("1: it is no text, as" in told) == is_news and told.endswith(again) != is_news
    (folder / "more.bin").write_bytes(b"\0")
    assert cli.main(["index", str(folder)]) == 0
    assert "2: it is no text, as" in capsys.readouterr().err
    for name in ("data.bin", "more.bin", "link", "music/bad.md"):
        (folder / name).unlink()
    assert cli.main(["index", str(folder)]) == 0
    assert "no documents" not in (told := capsys.readouterr().err) and "as before" not in told


def test_the_bar_goes_on_within_a_large_file(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text(
        "".join(f"{place} words of a text that goes on " for place in range(9_000))
    )
    (tmp_path / "none").write_bytes(b"\0" * 1_000)
    (tmp_path / "small.txt").write_text("words")
    reader = Reader([tmp_path], tmp_path / "index", Wanted())
    paths = reader.files()
    counted: list[int] = []
    with Sized(paths, is_quiet=True) as bar, rag.Index(tmp_path / "index", Words(tokens_max=100)) as index:
        total = bar.bar.total
        assert total == sum(path.stat().st_size for path in paths) > 250_000

        def part(document: rag.Document, share: float) -> None:
            bar.part(document, share)
            counted.append(bar.counted)

        index.update(reader.documents(paths, bar.unread), progress=bar.done, part=part)
        assert len(index) > 600 and bar.counted == total
    # While it is cut, and while it is embedded.
    assert counted == sorted(counted) and len([size for size in counted if size < total * 0.06]) > 3
    assert len(set(counted)) > 8 and max(counted) < total


def test_a_condition_has_several_values_and_numbers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["index", str(folder), "--quiet"]) == 0
    assert cli.main(["ask", "logs", "--where", "suffix=.md", "--where", "suffix=.txt", "--json"]) == 0
    hits = json.loads(capsys.readouterr().out)["hits"]
    assert {Path(hit["document"]).suffix for hit in hits} == {".md", ".txt"}
    assert cli.main(["ask", "logs", "--where", "sufix=.md"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing found; of documents here is known") and "suffix: .txt" in out
    with rag.Index.build(
        tmp_path / "years",
        [rag.Document("old", "The sun.", {"year": 1999, "day": "1999-12-31"})],
        rag.OnnxEmbedder(),
    ):
        pass
    for condition, is_found in {
        "year=1999": True,
        "year!=1999": False,
        "year!=2000": True,
        "year>1998": True,
        "year>1999": False,
        "year>=1999": True,
        "year<1999": False,
        "year<=1999": True,
        "day>=1999-12": True,
        "day<1999-12": False,
        "day!=": True,
    }.items():
        assert cli.main(["ask", "sun", "--index", str(tmp_path / "years"), "--where", condition]) == 0
        assert ("1. old" in capsys.readouterr().out) == is_found, condition
    both = ["--where", "year>1998", "--where", "year<1999"]
    assert cli.main(["ask", "sun", "--index", str(tmp_path / "years"), *both]) == 0
    assert capsys.readouterr().out.startswith("nothing found")
    for words in (["ask", " "], ["ask", "half \ud800"], ["ask", "x", "--where", "k=\ud800"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
    assert cli.main(["ask", "logs", "--where", f"suffix={'[' * 100_000}"]) == 0
    assert capsys.readouterr().out.startswith("nothing found")
    assert cli.main(["ask", "logs", "--model", "m", "--no-llm"]) == 0
    assert cli.main(["ask", "x", "--model", "m"]) == 2
    assert "say it with --llm" in capsys.readouterr().err


def test_what_is_no_document_any_more_is_forgotten_and_what_cannot_be_seen_is_not(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["index", str(folder), "--quiet"]) == 0
    (folder / "music/notes.txt").write_text(" ")
    refuse(monkeypatch, "logs")
    assert cli.main(["index", str(folder)]) == 0
    told = capsys.readouterr().err
    assert "1 removed, 1 as it was" in told and "3 in all" in told
    assert f"1: folder: Permission denied, as {folder}/logs" in told and "as " + str(folder / "data.bin") in told
    monkeypatch.undo()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (folder / "music").rename(tmp_path / "elsewhere")
    assert cli.main(["index", str(folder / "music")]) == 2
    assert "--forget" in capsys.readouterr().err
    assert cli.main(["index", str(folder / "music"), "--forget"]) == 0
    assert "1 file forgotten; 2 passages in all" in capsys.readouterr().err
    assert cli.main(["index", str(folder), "--forget"]) == 0
    assert cli.main(["ask", "anything"]) == 0
    assert "the index is empty" in capsys.readouterr().out


def test_help_is_given_wherever_the_index_lies(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, "/tmp/100%d")
    for command in ("ask", "eval"):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0 and "/tmp/100%d" in re.sub(r"\s", "", capsys.readouterr().out)


def test_what_is_wrong_is_said_with_what_to_do(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["ask", "anything"], "there is none; make it: scot rag index FOLDER"),
        (["index", str(folder / "absent")], "it is not there; name a folder"),
        (["index", str(folder), "--index", str(folder)], "it holds other files; name another folder"),
        (["index", str(folder), "--index", str(folder / "data.bin")], "it is no folder"),
    ):
        assert cli.main(words) == 2
        assert said in capsys.readouterr().err
    for words in (["ask", "x", "--count", "0"], ["ask"], ["index"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert ended.value.code == 2
    assert not (folder.parent / "data").exists(), "what failed left nothing"


def test_an_index_among_the_documents_is_none_of_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert cli.main(["index", str(folder), "--index", str(folder / "own")]) == 0
    assert "0 files added, 0 changed, 0 removed, 4 as they were" in capsys.readouterr().err


def test_without_what_it_stands_on_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Whether an earlier test has imported it or not.
    cli.COMMANDS.load("index")
    monkeypatch.delitem(sys.modules, "scotfree.rag.commands.index")
    monkeypatch.setitem(sys.modules, "scotfree.rag.calibration", None)
    monkeypatch.delattr("scotfree.rag.commands.index")
    assert cli.main(["index", "anything"]) == 2
    assert "pip install 'scotfree[rag]'" in capsys.readouterr().err


def test_the_example_of_the_package_is_true(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", rag.__doc__ or "", re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out == "Cats purr when they are content.\n"
    with pytest.raises(AttributeError, match="no attribute nothing"):
        _ = rag.nothing


def test_what_was_never_indexed_cannot_be_forgotten(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = ["--index", str(tmp_path / "index")]
    assert cli.main(["index", str(folder), *index]) == 0
    for names in ([str(folder / "nosuch")], [str(folder), str(folder / "nosuch")]):
        capsys.readouterr()
        assert cli.main(["index", *names, "--forget", *index]) == 2
        assert f"forget {folder}/nosuch: nothing of it is in the index" in capsys.readouterr().err
    assert cli.main(["index", str(folder / "music/violin.html"), "--forget", *index]) == 0
    assert "1 file forgotten; 3 passages in all" in capsys.readouterr().err


@pytest.mark.parametrize(("kinds", "shown", "rest"), [(5, 5, ""), (6, 6, ""), (7, 5, "  2 for 2 other reasons")])
def test_one_reason_more_takes_the_line_that_would_say_so(kinds: int, shown: int, rest: str) -> None:
    reasons = Counter({f"reason{at}": 1 + at // 6 for at in range(kinds)})
    lines = summary._said("none", reasons, {reason: Path("a") for reason in reasons})[1:]
    assert sum(", as a" in line for line in lines) == shown
    assert [line for line in lines if ", as a" not in line] == [rest] * bool(rest)


def test_one_is_no_plural() -> None:
    assert [summary.counted(count, "file") for count in (0, 1, 2, 1000)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,000 files",
    ]
