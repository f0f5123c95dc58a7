"""Damage of an index's files: whatever stands in a cell or a byte, who opens, asks or changes it is told."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_rag_index import QUESTIONS, documents

from bench.words import Words
from scotfree.rag import Document, Index, RagError
from scotfree.rag.outline import Heading, Outline

CASES = 100
TABLES = ("document", "passage", "pending", "gone", "setting")
VALUES: list[Any] = [
    *(None, "", "x", "[", "{}", "[]", "null", "[[1, 2]]", "[[1, 1000000000000]]", '{"a": NaN}', "[[1e999, 1, 1]]"),
    *(0, -1, 1, 2**31, 2**40, 2**63 - 1, 1.5, float("inf"), b"", b"\xff", b"[]", b"{}", b"null", b"0.5", b"nan"),
    *(b"-1", b"1e999", b"rows", b"codes", b"codes-1.scot", b"codes-7.scot", b"x" * 512, b'{"file": "../x"}'),
    *(b'{"file": null, "memory": [], "disk": [99], "bare": []}', "[" * 100_000, '{"kind": {"$gt": []}}'),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with a snapshot, rows, changes since, and no checks of SQLite's that keep damage out."""
    folder = tmp_path_factory.mktemp("whole") / "index"
    outline = Outline("line", title="Drums", headings=(Heading(0, 1, "Drums"),))
    with Index.build(folder, documents(120), Words()) as index:
        index.update([Document("new", "alpha beta\n\ngamma", {"kind": "new"}, outline=outline)])
        index.remove(["doc3"])
    with sqlite3.connect(folder / "passages.sqlite") as file:
        file.execute("pragma writable_schema = on")
        for kind in (" text unique not null", " text not null default '[]'", " text not null default ''"):
            file.execute("update sqlite_master set sql = replace(sql, ?, '')", [kind.replace(" unique", "")])
        file.execute("update sqlite_master set sql = replace(sql, ' not null', '') where name not like 'words%'")
    file.close()
    copied(folder, folder.parent / "copy")
    assert used(folder.parent / "copy") == [], "as it is it is whole"
    return folder


def used(folder: Path) -> list[str]:
    """All that is done with an index; what it says of damage. Another error than a `RagError` is a fault."""
    told: list[str] = []

    def tried(work: Callable[[], object]) -> None:
        try:
            work()
        except RagError as error:
            told.append(str(error))

    def use() -> None:
        with Index(folder, Words()) as index:
            for work in (
                lambda: index.search(QUESTIONS[0], 5, with_words=True, is_distinct=True, where={"kind": "new"}),
                lambda: index.search(QUESTIONS[1], 200, is_distinct=True),
                lambda: index.metadata(5, 5),
                lambda: (index.documents(), index.texts(["new", "doc1"])),
                lambda: told.extend(index.damages()),
                lambda: index.update(
                    [Document("more", "beta text"), Document("new", "alpha beta"), *documents(5)]
                ),
                lambda: index.remove(["doc7", "new"]),
                lambda: index.compact(is_forced=True),
                lambda: index.search(QUESTIONS[2], 5),
            ):
                tried(work)

    tried(use)
    return told


def copied(whole: Path, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    return folder / "passages.sqlite"


def test_any_cell_may_be_anything(whole: Path, tmp_path: Path) -> None:
    for seed in range(CASES):
        chance, path = random.Random(seed), copied(whole, tmp_path / "index")
        with sqlite3.connect(path) as file:
            table = chance.choice(TABLES)
            column = chance.choice([row[1] for row in file.execute(f"pragma table_info({table})")])
            row = chance.choice(file.execute(f"select rowid from {table}").fetchall())[0]
            value = chance.choice(VALUES)
            try:
                file.execute(f"update {table} set {column} = ? where rowid = ?", [value, row])
            except sqlite3.Error:
                continue
        file.close()
        try:
            used(path.parent)
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {table}.{column} = {str(value)[:50]!r} in {row}") from error


def test_any_byte_may_be_another(whole: Path, tmp_path: Path) -> None:
    for seed in range(CASES):
        chance, path = random.Random(seed), copied(whole, tmp_path / "index")
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice((1, 8, 64))):
            data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        path.write_bytes(data[: chance.randrange(len(data))] if seed % 10 == 0 else data)
        try:
            used(path.parent)
        except BaseException as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("update document set name = null where name = 'doc1'", "the name of a document is damaged"),
        ("update document set metadata = 'x' where name = 'doc1'", "what it says of a document is damaged"),
        ("update document set metadata = '[]' where name = 'doc1'", "what it says of a document is damaged"),
        ("update document set passages = '[[1, 5]]' where name = 'doc1'", "which passages a document has"),
        ("update document set outline = 'x' where name = 'doc1'", "what it says of a document is damaged"),
        ("update passage set text = null where id = 9", "1 passages have no text, no place or no document"),
        ("update passage set document = 999 where id = 9", "1 passages have no text, no place or no document"),
        ("delete from pending", "passages are not found by any search"),
    ],
)
def test_what_sqlite_takes_for_whole_is_named_by_a_check(
    whole: Path, tmp_path: Path, statement: str, why: str
) -> None:
    path = copied(whole, tmp_path / "index")
    with sqlite3.connect(path) as file:
        assert file.execute(statement).rowcount >= 1
    file.close()
    with Index(path.parent, Words()) as index:
        told = index.damages()
    assert any(why in one and ("index again" in one or "check --mend" in one) for one in told), told


@pytest.mark.parametrize("table", ["document", "passage", "words", "pending", "gone", "setting"])
def test_a_table_that_is_not_there_is_told(whole: Path, tmp_path: Path, table: str) -> None:
    path = copied(whole, tmp_path / "index")
    with sqlite3.connect(path) as file:
        file.execute(f"drop table {table}")
    file.close()
    with pytest.raises(RagError, match=rf"passages\.sqlite: it \(no such table: {table}\) is damaged; remove"):
        Index(path.parent, Words())


@pytest.mark.parametrize(
    "name", ["embedder", "cut", "keeps", "recall", "bound", "learnt", "placement", "snapshot"]
)
@pytest.mark.parametrize("value", [b"{", b"null", b'{"file": 3}', None])
def test_a_setting_that_is_none_is_told(whole: Path, tmp_path: Path, name: str, value: bytes | None) -> None:
    path = copied(whole, tmp_path / "index")
    with sqlite3.connect(path) as file:
        assert file.execute("update setting set value = ? where name = ?", [value, name]).rowcount == 1
    file.close()
    assert any("is damaged" in told and "index again" in told for told in used(path.parent)) or name == "learnt"


def test_documents_without_what_made_them_are_not_given_another_embedder(whole: Path, tmp_path: Path) -> None:
    path = copied(whole, tmp_path / "index")
    with sqlite3.connect(path) as file:
        file.execute("delete from setting where name = 'embedder'")
    file.close()
    with pytest.raises(RagError, match="what it says of its embedder is damaged"):
        Index(path.parent, Words("others"))


@pytest.mark.parametrize("grown", [10, 600])
def test_a_damaged_row_is_made_again_when_the_index_is_compacted(tmp_path: Path, grown: int) -> None:
    """Whether clusters are learnt anew or not."""
    folder, embedder = tmp_path / "index", Words()
    Index.build(folder, documents(120), embedder).close()
    (rows,) = folder.glob("exact-*.scot")
    data = bytearray(rows.read_bytes())
    data[-3] ^= 0xFF
    rows.write_bytes(data)
    with Index(folder, embedder) as index:
        assert "the row of passage" in index.damages()[0]
        index.update(documents(120 + grown))
        embedder.asked.clear()
        index.compact(is_forced=True)
        again = [text for text in embedder.asked if text in {document.text for document in documents(120)}]
        assert len(again) == 1 and index.damages() == []
        assert index.search(again[0], 1).hits[0].similarity == pytest.approx(1, abs=0.01)
