"""Threads that search, change and close one index at a time see what counts, and spoil nothing."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.words import Words
from scotfree.rag import Document, Index, RagError, reader
from scotfree.rag.passages import Where


def test_what_is_half_read_hides_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PAGE", 10)
    folder = tmp_path / "index"
    with Index.build(folder, [Document(str(at), f"word{at}") for at in range(50)], Words()) as index:
        reading = index.passages.places()
        next(reading)
        index.add([Document("new", "delta wing"), Document("7", "other words")])
        assert index.compact(is_forced=True) and len(index) == 51
        assert index.search("delta wing", 1).hits[0].document == "new"
        # Those that were read before it was changed, and then what there is.
        assert [name for _, name, _ in reading][-2:] == ["new", "7"]
        index.update([Document("7", "word7")])
        assert [text.text for text in index.texts(["7"])] == ["word7"]
    with Index(folder, Words()) as index:
        assert index.search("delta wing", 1).hits[0].document == "new"


def test_searches_beside_changes_see_them_and_spoil_none(tmp_path: Path) -> None:
    folder, done = tmp_path / "index", threading.Event()
    with Index.build(folder, [Document(str(at), f"word{at}") for at in range(99)], Words()) as index:

        def searching() -> int:
            asked = 0
            while not done.is_set():
                where: Where = (lambda name, _: name != "0") if asked % 2 else {}
                assert index.search("word7", 3, with_words=True, where=where).hits
                asked += 1
            return asked

        with ThreadPoolExecutor() as pool:
            threads = [pool.submit(searching) for _ in range(3)]
            try:
                for turn in range(15):
                    index.update([Document(f"{turn}-{at}", f"turn{turn} word{at}") for at in range(9)])
                    assert index.search(f"turn{turn} word8", 1).hits[0].document == f"{turn}-8"
                    index.compact(is_forced=True)
            finally:
                done.set()
            assert all(thread.result() for thread in threads)
    with Index(folder, Words()) as index:
        assert len(index) == 99 + 15 * 9 and index.search("turn14 word8", 1).hits[0].document == "14-8"


def test_who_searches_while_it_is_closed_is_told(tmp_path: Path) -> None:
    index = Index.build(tmp_path / "index", [Document(str(at), f"word{at}") for at in range(99)], Words())
    begun = threading.Barrier(4)

    def searching() -> str:
        begun.wait()
        while True:
            try:
                index.search("word7", with_words=True)
            except RagError as error:
                return str(error)

    with ThreadPoolExecutor() as pool:
        threads = [pool.submit(searching) for _ in range(3)]
        begun.wait()
        index.close()
        assert {thread.result() for thread in threads} == {"read the index: it is closed; open it again"}
    with pytest.raises(RagError, match="it is closed"):
        index.add([Document("new", "text")])
    index.close()


def test_who_is_told_of_progress_may_look_but_not_change(tmp_path: Path) -> None:
    with Index(tmp_path / "index", Words()) as index:
        seen = []

        def told(document: Document) -> None:
            index.refresh()
            seen.append([hit.document for hit in index.search("one", 1).hits])
            with pytest.raises(RagError, match="or what calls this"):
                index.remove([document.name])

        index.update([Document("a", "one"), Document("b", "two")], progress=told)
        assert seen == [["a"], ["a"]] and index.documents() == ["a", "b"]
