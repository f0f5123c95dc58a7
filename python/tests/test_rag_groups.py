"""Small documents are embedded and written together; each is in the index or not, and those told of are."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import rag_growing

from bench.words import Words
from scotfree.rag import Document, Index, RagError
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.passages import Passages

ROOT = Path(__file__).parents[1]


class Counted(Words):
    """Says how many texts it embedded at a time, and tires of it."""

    def __init__(self, most: int = 1_000_000) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.most = most

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.sizes.append(len(texts))
        if sum(self.sizes) > self.most:
            raise RagError("embed: tired", "wait")
        return super().embed(texts)


def small(count: int) -> list[Document]:
    return [Document(f"doc{place}", f"one{place} two{place}") for place in range(count)]


def test_small_documents_are_embedded_together(tmp_path: Path) -> None:
    embedder = Counted()
    long = Document("long", "\n\n".join(" ".join(f"{part}w{place}" for place in range(38)) for part in range(700)))
    with Index(tmp_path / "index", embedder) as index:
        assert index.update([*small(600), long]).embedded == 1300
        assert embedder.sizes == [128] * 10 + [20], "and of one that is long, few enough to be in memory"
        for text in ("one0 two0", "one599 two599", "650w0 650w1 650w2"):
            assert index.search(text, 1).hits[0].text.startswith(text)
        embedder.sizes.clear()
        changes = index.update([*small(600), long, *small(601)[600:]])
        assert (changes.same, changes.added, embedder.sizes) == (601, 1, [1])


def test_documents_that_only_lost_passages_wait_no_longer_than_others(tmp_path: Path) -> None:
    embedder = Counted()
    with Index(tmp_path / "index", embedder) as index:
        index.update(small(600))
        embedder.sizes.clear()
        writes = []
        honest = index._passages.put
        index._passages.put = lambda changes, *more: writes.append(len(changes)) or honest(changes, *more)  # type: ignore
        same = [Document(document.name, document.text, {"new": 1}) for document in small(600)]
        assert index.update(same).embedded == 0
        assert writes == [128, 128, 128, 128, 88] and not sum(embedder.sizes)


def test_what_is_told_of_is_on_the_disk(tmp_path: Path) -> None:
    store, told = None, []
    with Index(tmp_path / "index", Words()) as index:
        store = Passages(tmp_path / "index/passages.sqlite")

        def progress(document: Document) -> None:
            assert document.name in store.documents()
            told.append(document.name)

        index.update(small(600), progress=progress)
        assert told == [document.name for document in small(600)]
        store.close()


@pytest.mark.parametrize(("texts", "wanted"), [(["b", "c"], "c"), (["b", "a"], "a"), (["b", "b"], "b")])
def test_of_one_name_the_last_counts(tmp_path: Path, texts: list[str], wanted: str) -> None:
    with Index(tmp_path / "index", Words()) as index:
        index.update([Document("one", "a")])
        index.update([Document("one", text) for text in texts])
        assert [hit.text for hit in index.search("a", 5).hits] == [wanted]


def test_what_was_written_before_something_went_wrong_stays(tmp_path: Path) -> None:
    with Index(tmp_path / "index", Counted(550)) as index, pytest.raises(RagError, match="tired"):
        index.update(small(600))
    embedder = Counted()
    with Index(tmp_path / "index", embedder) as index:
        assert len(index) == 512
        assert index.update(small(600)).embedded == 88
        assert len(index) == 600


def test_whoever_is_killed_finds_again_what_it_was_told_of(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.rag_growing", str(tmp_path / "index")]
    process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = [next(process.stdout).strip() for _ in range(700)]
    process.kill()
    told += [line.strip() for line in process.stdout if line.endswith("\n")]
    process.wait()
    assert len(told) < rag_growing.COUNT, "it was killed in the middle"
    embedder = Words()
    with Index(tmp_path / "index", embedder) as index:
        there = set(index.documents())
        assert there >= set(told) and len(there) == len(index), "a document is whole"
        assert index.update(rag_growing.documents()).embedded == rag_growing.COUNT - len(there)
        assert len(index) == rag_growing.COUNT
        assert not {document.text for document in rag_growing.documents() if document.name in there} & set(
            embedder.asked
        )
        hit = index.search("first2499 second2499 third2499", 1).hits[0]
        assert hit.document == "doc2499"
