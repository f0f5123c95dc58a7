"""`scot rag check`: damage is named, and a share of the nearest that is not found is told and mended."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from test_rag_index import QUESTIONS, documents

from bench.words import Words
from scotfree.rag import Index, calibration
from scotfree.rag.calibration import Bound
from scotfree.rag.cli import main
from scotfree.rag.commands import opening
from scotfree.rag.settings import Keep


@pytest.fixture(autouse=True)
def made_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "by_name", lambda *_, **__: Words())


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Index.build(tmp_path / "index", documents(600), Words()):
        yield tmp_path / "index"


def check(folder: Path, *more: str) -> int:
    return main(["check", "--index", str(folder), *more])


def narrowed(folder: Path) -> Bound:
    """The index's bound is what finds nothing but what is looked at first."""
    with Index(folder, Words()) as index:
        assert index.bound is not None
        index.passages.make_known("bound", replace(index.bound, deviations=-5.0).written())
        return index.bound


def test_a_whole_index_says_what_it_finds_and_what_more_would_take(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(folder) == 0
    printed = capsys.readouterr()
    assert "600 passages of 600 documents" in printed.out and "held (128 questions)" in printed.out
    assert "to find     a search takes exact values of\n" in printed.out and "0.9 " in printed.out
    assert "drawn from your texts" in printed.err
    assert check(folder, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["damages"] == [] and said["measured"]["is_held"]
    targets = [one["target"] for one in said["measured"]["others"]]
    assert targets == sorted(targets) and len(targets) >= 4
    exact = [one["exact"] for one in said["measured"]["others"]]
    assert exact == sorted(exact), "to find more takes more"


def test_what_is_not_found_is_told_and_held_when_that_is_asked_for(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "BATCH", 1)
    before = narrowed(folder)
    asked = tmp_path / "asked.txt"
    asked.write_text("\n".join(QUESTIONS))
    assert check(folder, "--questions", str(asked)) == 1
    printed = capsys.readouterr().out
    assert "NOT HELD" in printed and f"`scot rag check --hold {before.target}`" in printed
    assert check(folder, "--questions", str(asked), "--hold", "0.98") == 0
    assert f"0.98 is wanted: held ({len(QUESTIONS)} questions)" in capsys.readouterr().out
    with Index(folder, Words()) as index:
        assert index.bound is not None and index.bound.target == 0.98 and index.bound.deviations > 0


@pytest.mark.parametrize("keep", ["codes", "rows"])
def test_an_index_without_a_snapshot_or_without_rows_is_checked(
    tmp_path: Path, keep: Keep, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "index"
    with Index(folder, Words(), keep=keep) as index:
        index.update(documents(300))
        assert check(folder) == 0
        assert "not built to its end" in capsys.readouterr().out
        index.compact()
    assert check(folder) == 0
    printed = capsys.readouterr().out
    assert ("(each embedded again)" in printed) == (keep == "codes")
    assert ("no rows" in printed) == (keep == "codes") and "held (" in printed


def test_a_damaged_row_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (rows,) = folder.glob("exact-*.scot")
    data = bytearray(rows.read_bytes())
    data[-3] ^= 0xFF
    rows.write_bytes(data)
    assert check(folder) == 1
    printed = capsys.readouterr().out
    assert "is damaged:" in printed and "the row of passage" in printed and "remove that file" in printed


def test_damage_in_the_middle_of_the_texts_is_named_with_the_mend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "index"
    Index.build(folder, documents(600), Words()).close()
    path = folder / "passages.sqlite"
    data = bytearray(path.read_bytes())
    # A page of texts becomes one of nothing.
    at = data.index(b"topic3word", len(data) // 3) // 4096 * 4096
    data[at : at + 4096] = bytes(4096)
    path.write_bytes(data)
    assert check(folder) == 1
    printed = capsys.readouterr().out
    assert "passages.sqlite:" in printed and "remove the index's folder and index again" in printed
    assert main(["ask", "topic3word1", "--index", str(folder), "--words", "--count", "300"]) == 2
    assert "is damaged" in (told := capsys.readouterr().err) and "index again" in told
