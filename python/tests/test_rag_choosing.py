"""Which files are read: by patterns, and by what `.gitignore` files say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.words import Words
from scotfree.rag import RagError, cli
from scotfree.rag.choosing import Choice, Wanted
from scotfree.rag.documents import files

FILES = (
    "a.md",
    "a.txt",
    "drafts/b.md",
    "src/.hidden.md",
    "src/build/out.md",
    "src/build/keep.md",
    "src/c.py",
    "src/deep/drafts/d.md",
    "build/e.md",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"text of {name}")
    return tmp_path / "docs"


def chosen(folder: Path, **wanted: object) -> set[str]:
    choice = Choice(folder, Wanted(**wanted))  # type: ignore[arg-type]
    found = {str(path.relative_to(folder)) for path in files(folder, takes=choice.takes)}
    assert found == {name for name in FILES if choice.reaches(folder / name)}, "one by one as by walking"
    return found


SHOWN = set(FILES) - {"src/.hidden.md"}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, SHOWN),
        ({"include": ["*.py"]}, {"src/c.py"}),
        ({"include": ["*.py", "/a.*"]}, {"src/c.py", "a.md", "a.txt"}),
        ({"include": ["drafts/"]}, {"drafts/b.md", "src/deep/drafts/d.md"}),
        ({"exclude": ["drafts/", "*.txt"]}, SHOWN - {"drafts/b.md", "src/deep/drafts/d.md", "a.txt"}),
        ({"exclude": ["/drafts"]}, SHOWN - {"drafts/b.md"}),
        ({"include": ["*.md"], "exclude": ["src/", "!a.md"]}, {"a.md", "drafts/b.md", "build/e.md"}),
    ],
)
def test_patterns_are_those_of_gitignore(folder: Path, wanted: dict[str, list[str]], found: set[str]) -> None:
    assert chosen(folder, **wanted) == found


def test_what_gitignore_files_leave_out_is_left_out_if_it_is_wanted(folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("build\n!\n# a note\n")
    (folder / "src/.gitignore").write_text("!build\nbuild/*\n!keep.md\n/c.py\n")
    assert chosen(folder) == SHOWN
    left = {"build/e.md", "src/build/out.md", "src/c.py"}
    assert chosen(folder, with_gitignore=True) == SHOWN - left
    # Of the repository that a folder is in, too.
    (folder / "src/.gitignore").unlink()
    choice = Choice(folder / "src", Wanted(with_gitignore=True))
    assert {path.name for path in files(folder / "src", takes=choice.takes)} == {"c.py", "d.md"}


def test_a_folder_whose_gitignore_cannot_be_read_is_not_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scotfree.rag.choosing._read", lambda path: (_ for _ in ()).throw(PermissionError("no")))
    told: list[Path] = []
    choice = Choice(folder, Wanted(with_gitignore=True))
    assert not list(files(folder, lambda path, _: told.append(path), choice.takes)) and told == [folder]


def test_what_is_left_out_is_forgotten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scotfree.rag.commands.opening.by_name", lambda *_, **__: Words())
    index = ["--index", str(tmp_path / "index")]
    assert cli.main(["index", str(folder), *index]) == 0
    assert cli.main(["index", str(folder), *index, "--exclude", "drafts/", "--include", "*.md"]) == 0
    assert "4 removed, 4 as they were" in capsys.readouterr().err
    # A file that is named is meant.
    assert cli.main(["index", str(folder / "a.txt"), *index, "--include", "*.md"]) == 0
    assert "1 file added" in capsys.readouterr().err
    assert cli.main(["index", str(folder), *index, "--exclude", "!"]) == 2
    assert "say patterns as in a .gitignore file" in capsys.readouterr().err
    with pytest.raises(RagError, match="say patterns"):
        Choice(folder, Wanted(include=["!"]))


def test_patterns_that_choose_nothing_forget_nothing(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    index = str(tmp_path / "index")
    assert cli.main(["index", str(folder), "--index", index, "--quiet"]) == 0
    assert cli.main(["index", str(folder), "--index", index, "--include", "*.nope"]) == 2
    assert "no file there is as --include *.nope says" in capsys.readouterr().err
    assert cli.main(["index", str(folder), "--index", index]) == 0
    assert "0 removed" in capsys.readouterr().err
