"""`--words`: a passage that alone has a word is found first by it, whatever embeddings say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.words import Words
from scotfree.rag import Document, Index
from scotfree.rag.embed.embedder import Vectors

ONLY = "zq0007x"


class Blind(Words):
    """It sees no names, as a model that never read them."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """As of the other words."""
        return super().embed([" ".join(word for word in text.split() if "zq" not in word) for text in texts])


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """It is in one passage among 300 similar ones, and neither the first nor the nearest."""
    texts = [f"part zq{at + 1000}x is kept in the store on shelf s{at}" for at in range(300)]
    texts[211] = f"the part {ONLY} lies elsewhere, and there is more to be said of it than of others"
    documents = [Document(f"{at:03}", text) for at, text in enumerate(texts)]
    with Index.build(tmp_path / "index", documents, Blind()) as index:
        return Index(index.folder, Blind())


@pytest.mark.parametrize(
    "question",
    [ONLY, f"where is part {ONLY} kept", f"in the store, {ONLY}?", f"part is kept {ONLY.upper()}"],
)
@pytest.mark.parametrize("count", [1, 5, 10, 50])
def test_the_only_passage_with_a_word_comes_first(index: Index, question: str, count: int) -> None:
    with index:
        first = index.search(question, count, with_words=True).hits[0]
        assert first.document == "211"


def test_of_equal_ranks_those_with_the_words_come_first(index: Index) -> None:
    with index:
        index.add([Document(f"kept{at}", f"lyre number{at}") for at in range(4)])
        # Nearer to it is everything else, by the letters of the embedder.
        hits = index.search("lyre", 10, with_words=True).hits
        assert ["lyre" in hit.text for hit in hits[:4]] == [True] * 4


def test_rare_words_that_are_no_names_are_no_order_of_their_own(index: Index) -> None:
    with index:
        index.add([Document("kept", "lyre and nothing else")])
        question = "lyre part is kept in the store on shelf"
        words = index.passages.with_words(question, 50)
        assert index.passages.with_names(question) == set() and len(words) == 50
        assert index.passages.with_names(f"lyre {ONLY}") == set(index.passages.with_words(ONLY, 2))


def test_what_a_filter_leaves_out_is_found_by_no_word(index: Index) -> None:
    with index:
        index.add([Document("other", "part is kept elsewhere", {"kind": "note"})])
        hits = index.search(f"part {ONLY}", 5, with_words=True, where={"kind": "note"}).hits
        assert [hit.document for hit in hits] == ["other"]
