"""Threads that search, change and close one index at a time see what counts, and spoil nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from bench.words import Words
from scotfree.rag import Document, Index, RagError, reader
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.passages import Where


def test_what_is_half_read_hides_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_PAGE", 10)
    folder = tmp_path / "index"
    with Index.build(folder, [Document(str(at), f"word{at}") for at in range(50)], Words(), keep="codes") as index:
        reading = index.passages.places()
        next(reading)
        index.add([Document("new", "delta wing"), Document("7", "other words")])
        assert index.compact(is_forced=True) and len(index) == 51
        assert index.search("delta wing", 1).hits[0].document == "new"
        # Those that were read before it was changed, and then what there is.
        assert [name for _, name, _ in reading][-2:] == ["new", "7"]
        index.update([Document("7", "word7")])
        assert [text.text for text in index.texts(["7"])] == ["word7"]
    with Index(folder, Words(), keep="codes") as index:
        assert index.search("delta wing", 1).hits[0].document == "new"


def test_searches_beside_changes_see_them_and_spoil_none(tmp_path: Path) -> None:
    folder, done = tmp_path / "index", threading.Event()
    with Index.build(folder, [Document(str(at), f"word{at}") for at in range(99)], Words(), keep="codes") as index:

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
    with Index(folder, Words(), keep="codes") as index:
        assert len(index) == 99 + 15 * 9 and index.search("turn14 word8", 1).hits[0].document == "14-8"


def test_who_searches_while_it_is_closed_is_told(tmp_path: Path) -> None:
    index = Index.build(
        tmp_path / "index", [Document(str(at), f"word{at}") for at in range(99)], Words(), keep="codes"
    )
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
    with Index(tmp_path / "index", Words(), keep="codes") as index:
        seen = []

        def told(document: Document) -> None:
            index.refresh()
            seen.append([hit.document for hit in index.search("one", 1).hits])
            with pytest.raises(RagError, match="or what calls this"):
                index.remove([document.name])

        index.update([Document("a", "one"), Document("b", "two")], progress=told)
        assert seen == [["a"], ["a"]] and index.documents() == ["a", "b"]


@pytest.mark.parametrize("with_words", [False, True])
@pytest.mark.parametrize("where", [{"of": "me"}, lambda _, metadata: metadata["of"] == "me"])
def test_what_is_put_in_during_a_search_passes_its_filter_or_is_not_found(
    tmp_path: Path, where: Where, with_words: bool
) -> None:
    """Between asking what a filter leaves out and what is near, the question is embedded."""
    mine = [Document(str(at), f"word{at} text", {"of": "me"}) for at in range(20)]
    with Index.build(tmp_path / "index", mine, Words(), keep="codes") as index:
        embedder, honest = index.embedder, index.embedder.embed
        others = [Document("other", "question text", {"of": "you"}), Document("3", "word3", {"of": "you"})]

        def embed(texts: Sequence[str]) -> Vectors:
            if texts == ["question text"]:
                embedder.embed = honest  # type: ignore[method-assign]
                index.update(others)
            return honest(texts)

        embedder.embed = embed  # type: ignore[method-assign]
        found = index.search("question text", 30, where=where, with_words=with_words).hits
        assert {*index.documents()} > {"other"} and {hit.metadata["of"] for hit in found} == {"me"}
        assert {hit.document for hit in found} == {str(at) for at in range(20)} - {"3"}


def test_a_filter_that_is_none_is_refused_though_it_is_empty(tmp_path: Path) -> None:
    with Index.build(
        tmp_path / "index", [Document("a", "one", {"k": "a\0b", "n": 2**63})], Words(), keep="codes"
    ) as index:
        nothing: list[Any] = [[], "", 0]
        for wrong in nothing:
            with pytest.raises(RagError, match="say keys and values"):
                index.search("one", where=wrong)
        # Of which SQLite takes both for what is there.
        for unlike in ({"k": "a"}, {"n": 2**63 + 1}):
            assert not index.search("one", where=unlike).hits
        assert index.search("one", where={}).hits and index.search("one", where={"n": 2**63}).hits


def test_what_a_filter_does_to_metadata_is_found_by_nobody(tmp_path: Path) -> None:
    def filling(_: str, metadata: dict[str, Any]) -> bool:
        metadata["tags"].append("x")
        return True

    with Index.build(tmp_path / "index", [Document("a", "one", {"tags": ["t"]})], Words(), keep="codes") as index:
        assert index.search("one", where=filling).hits[0].metadata == {"tags": ["t"]}


def test_a_signal_may_close_what_is_being_searched(tmp_path: Path) -> None:
    """As who is asked to end does: in between any two steps of the thread that searches."""
    index = Index.build(
        tmp_path / "index", [Document(str(at), f"word{at}") for at in range(99)], Words(), keep="codes"
    )
    before = signal.signal(signal.SIGALRM, lambda *_: index.close())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(RagError, match="it is closed"):
            while True:
                index.search("word7", with_words=True, where=lambda *_: True)
    finally:
        # First, so that what else goes wrong is a failure of this test and not the end of the process.
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
