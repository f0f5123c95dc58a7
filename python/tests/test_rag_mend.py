"""What is damaged or lost of codes and rows is made anew from what else there is; other trouble is told apart."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from test_rag_index import QUESTIONS, documents, found

from bench.words import Words
from scotfree.rag import Document, Index, RagError
from scotfree.rag.asking import Asker, Question
from scotfree.rag.cli import main
from scotfree.rag.commands import opening
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.placement import stored
from scotfree.rag.placement.kinds import Placement
from scotfree.rag.settings import Keep
from scotfree.rag.trouble import Damaged

COUNT = 120


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def of(folder: Path, kind: str) -> Path:
    (path,) = folder.glob(f"{kind}-*.scot")
    return path


def flipped_codes(folder: Path) -> None:
    flip(of(folder, "codes"), 200)


def no_codes(folder: Path) -> None:
    of(folder, "codes").unlink()


def no_rows(folder: Path) -> None:
    of(folder, "exact").unlink()


def flipped_row(folder: Path) -> None:
    flip(of(folder, "exact"), -1)


def flipped_head(folder: Path) -> None:
    flip(of(folder, "exact"), 20)


def nothing(folder: Path) -> None:
    no_codes(folder)
    no_rows(folder)


def made(folder: Path, keep: Keep) -> list[list[str]]:
    """An index with a snapshot and changes since; what it finds."""
    with Index.build(folder, documents(COUNT), Words(), keep=keep) as index:
        index.update(documents(COUNT + 2)[-2:])
        index.remove(["doc3"])
        return [found(index, question) for question in QUESTIONS]


@pytest.mark.parametrize(
    ("keep", "damage", "embedded", "opens"),
    [
        ("rows", flipped_codes, 0, False),
        ("rows", no_codes, 0, False),
        ("rows", no_rows, COUNT - 1, True),
        ("rows", flipped_row, 1, True),
        ("rows", flipped_head, COUNT - 1, False),
        ("rows", nothing, COUNT - 1, False),
        ("codes", flipped_codes, COUNT - 1, False),
    ],
)
def test_codes_and_rows_are_made_anew(
    tmp_path: Path, keep: Keep, damage: Callable[[Path], None], embedded: int, opens: bool
) -> None:
    folder = tmp_path / "index"
    before = made(folder, keep)
    damage(folder)
    if not opens:
        with pytest.raises(Damaged, match="`scot rag check --mend` makes anew what can be"):
            Index(folder, Words())
    with Index(folder, Words(), mends=True) as index:
        assert index.mend() == embedded
        assert index.damages() == [] and index.mend() == 0, "nothing is left to do"
    with Index(folder, Words()) as index:
        assert [found(index, question) for question in QUESTIONS] == before and len(index) == COUNT + 1
        assert index.embeds_nothing == (keep == "rows") and index.damages() == []


def test_rows_that_a_compaction_had_none_of_are_made_again(tmp_path: Path) -> None:
    made(tmp_path / "index", "rows")
    no_rows(tmp_path / "index")
    with Index(tmp_path / "index", Words()) as index:
        index.update(documents(COUNT + 40)[-38:])
        assert index.compact(is_forced=True)
        assert index.mend() == COUNT - 1
        assert index.search(QUESTIONS[0]).regenerated == 0 and index.mend() == 0


def test_what_was_planned_for_clusters_that_are_lost_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    before = made(folder, "codes")
    with Index(folder, Words()) as index:
        index.place(Placement.of(disk=[0, 1]))
    no_codes(folder)
    with Index(folder, Words(), mends=True) as index:
        index.mend()
        assert not index.stored.placement.kept
    with Index(folder, Words()) as index:
        assert [found(index, question) for question in QUESTIONS] == before


def test_passages_that_no_search_finds_are_found_again(tmp_path: Path) -> None:
    made(tmp_path / "index", "rows")
    with Index(tmp_path / "index", Words()) as index:
        index.passages._changes.execute("delete from pending")
        index.passages._changes.commit()
    with Index(tmp_path / "index", Words(), mends=True) as index:
        assert "2 passages are not found by any search; `scot rag check --mend`" in index.damages()[0]
        assert index.mend() == 2 and index.damages() == []


def test_what_is_in_the_way_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "index", "rows")

    def refused(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(stored, "Exact", refused)
    with pytest.raises(
        RagError, match="Permission denied; make that possible: the files of the index are as"
    ) as told:
        Index(tmp_path / "index", Words(), mends=True)
    assert not isinstance(told.value, Damaged)


def test_check_mends(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    folder = tmp_path / "index"
    made(folder, "rows")
    flipped_codes(folder)
    words = ["check", "--index", str(folder)]
    assert main(words) == 1, "it is damaged"
    assert f"{folder} is damaged:\n  open the index {folder}: " in capsys.readouterr().out
    assert main([*words, "--json"]) == 1
    assert "scot rag check --mend" in json.loads(capsys.readouterr().out)["damages"][0]
    assert main([*words, "--mend"]) == 0
    said = capsys.readouterr()
    assert "whole; searches find" in said.out and "0 passages were embedded again" in said.err
    assert main(words) == 0


def test_who_asks_asks_the_index_that_lies_there_now(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    made(folder, "rows")
    question = Question(QUESTIONS[0], 200, with_words=False, where={}, with_model=False)
    with Index(folder, Words()) as index:
        asker = Asker(index)
        assert len(asker.search(question).hits) == COUNT + 1
        folder.rename(tmp_path / "old")
        with pytest.raises(RagError, match="it is not there any more; make it anew, or put it back"):
            asker.search(question)
        Index.build(folder, documents(5), Words()).close()
        assert len(asker.search(question).hits) == 5
        shutil.rmtree(folder)
        (tmp_path / "old").rename(folder)
        assert len(asker.search(question).hits) == COUNT + 1
        asker.close()


@pytest.mark.parametrize("how", [{"count": None}, {"count": 2.5}, {"probes": 1.5}, {"deviations": "3"}])
def test_what_is_no_number_is_told(tmp_path: Path, how: dict[str, Any]) -> None:
    with Index.build(tmp_path / "index", documents(5), Words()) as index:
        with pytest.raises(RagError, match="search with"):
            index.search("alpha", **how)
        with pytest.raises(RagError, match="find a of the nearest"):
            index.hold("a")  # type: ignore[arg-type]


def test_what_no_index_keeps_spoils_none(tmp_path: Path) -> None:
    with pytest.raises(RagError, match="keep 'x' of each passage; say one of codes, rows"):
        Index(tmp_path / "index", Words(), keep="x")  # type: ignore[arg-type]
    Index.build(tmp_path / "index", documents(5), Words()).close()


class Narrow(Words):
    """Says that it is the same, and is not."""

    def __init__(self) -> None:
        super().__init__()
        self.dimensions //= 2

    def embed(self, texts: Sequence[str]) -> Vectors:
        return super().embed(texts)[:, : self.dimensions]


def test_an_embedder_of_the_same_digest_and_other_dimensions_is_refused(tmp_path: Path) -> None:
    made(tmp_path / "index", "rows")
    with pytest.raises(RagError, match=r"dimensions, and those of .* now have"):
        Index(tmp_path / "index", Narrow())


def test_what_is_known_is_told_where_nothing_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())
    many = [Document(f"a\n{at}", f"text {at}", {"year": 2000 + at, "kind": "note"}) for at in range(9)]
    Index.build(tmp_path / "index", many, Words()).close()
    words = ["ask", "text", "--index", str(tmp_path / "index")]
    assert main([*words, "--where", "nokey=1"]) == 0
    out = capsys.readouterr().out
    assert "most frequent first:\n  kind: note\n  year: 2000, 2001, 2002, 2003, …\n" in out
    assert main([*words, "--count", "1"]) == 0
    assert "1. a\\u000a" in capsys.readouterr().out, "a name has no lines"
