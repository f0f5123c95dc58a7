"""LangChain's store: what LangChain asks of every vector store, and what is ours."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from bench.words import Words
from scotfree import rag
from scotfree.rag import Index, RagError
from scotfree.rag.integrations import whole
from scotfree.rag.integrations.langchain import ScotfreeVectorStore

TEXTS = [f"alpha{place % 7} beta{place % 5} gamma{place % 3} word{place}" for place in range(120)]
METADATA = [{"topic": place % 4, "name": f"text {place}"} for place in range(120)]
IDS = [f"id{place}" for place in range(120)]
QUESTIONS = ["alpha1 beta2", "gamma0 word17", "alpha6 beta4 gamma2 word110"]
# At which hardly any bound is wrong.
SAFE = 5.0


class Uneven(Embeddings):
    """Vectors of 100 numbers, none of length one; a question's is another than a text's."""

    model = "uneven-2"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.texts += texts
        self.calls += 1
        return [self._vector(text, 1 + len(text) % 9) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self._vector(f"{text} query", 1e-3)

    def _vector(self, text: str, length: float) -> list[float]:
        vector: list[float] = (Words().embed([text])[0, :100] * length).tolist()
        return vector


class TestPending(VectorStoreIntegrationTests):
    """Nothing is in a snapshot."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path) -> Iterator[ScotfreeVectorStore]:
        with (store := ScotfreeVectorStore(self.get_embeddings(), tmp_path / "index")).index:
            yield store
        assert not list((tmp_path / "index").glob("codes-*"))


class TestSnapshot(VectorStoreIntegrationTests):
    """A snapshot is made after every change."""

    @pytest.fixture
    def vectorstore(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScotfreeVectorStore]:
        monkeypatch.setattr(whole, "CHANGES_MIN", 1)
        with (store := ScotfreeVectorStore(self.get_embeddings(), tmp_path / "index")).index:
            yield store
            assert not len(store.index) or list((tmp_path / "index").glob("codes-*"))


@pytest.fixture(params=["pending", "snapshot"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScotfreeVectorStore]:
    made = ScotfreeVectorStore.from_texts(
        TEXTS, Uneven(), METADATA, ids=IDS, folder=tmp_path / "index", keep="codes"
    )
    if request.param == "snapshot":
        made.index.compact()
    with made.index:
        yield made


@pytest.fixture
def peer() -> InMemoryVectorStore:
    """LangChain's own, which looks at all."""
    made = InMemoryVectorStore(Uneven())
    made.add_texts(TEXTS, METADATA, ids=IDS)
    return made


def test_it_finds_what_langchains_own_store_finds(store: ScotfreeVectorStore, peer: InMemoryVectorStore) -> None:
    for question in QUESTIONS:
        found = store.similarity_search_with_score(question, 9, deviations=SAFE)
        wanted = peer.similarity_search_with_score(question, 9)
        assert [document for document, _ in found] == [document for document, _ in wanted]
        assert [score for _, score in found] == pytest.approx([score for _, score in wanted], abs=1e-6)
        vector = [number * 3 for number in Uneven().embed_query(question)]
        assert store.similarity_search_by_vector(vector, 9, deviations=SAFE) == [document for document, _ in found]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_it_chooses_unlike_ones_as_langchains_own_store(
    store: ScotfreeVectorStore, peer: InMemoryVectorStore, weight: float
) -> None:
    for question in QUESTIONS:
        how: dict[str, Any] = {"k": 5, "fetch_k": 30, "lambda_mult": weight}
        wanted = peer.max_marginal_relevance_search(question, **how)
        assert store.max_marginal_relevance_search(question, **how, deviations=SAFE) == wanted
        vector = Uneven().embed_query(question)
        assert store.max_marginal_relevance_search_by_vector(vector, **how, deviations=SAFE) == wanted
    assert store.max_marginal_relevance_search("x", filter={"topic": 77}) == []


def test_a_retriever_takes_filters_and_thresholds(store: ScotfreeVectorStore, peer: InMemoryVectorStore) -> None:
    how = {"k": 8, "filter": {"topic": [1, 3]}, "deviations": SAFE}
    found = store.as_retriever(search_kwargs=how).invoke(QUESTIONS[0])
    wanted = peer.similarity_search(QUESTIONS[0], 8, filter=lambda document: document.metadata["topic"] in (1, 3))
    assert found == wanted
    how |= {"filter": {"topic": {"$gt": 0, "$ne": 2}, "$not": {"topic": {"$gte": 4}}}}
    assert store.as_retriever(search_kwargs=how).invoke(QUESTIONS[0]) == wanted
    own = store.similarity_search(QUESTIONS[0], 8, where=lambda name, of: of["topic"] % 2 == 1, deviations=SAFE)
    assert own == wanted
    scored = store.similarity_search_with_relevance_scores("alpha1", 120, score_threshold=0.2)
    assert 0 < len(scored) < 120 and all(0.2 <= score <= 1 for _, score in scored)
    everything = store.similarity_search_with_relevance_scores("alpha1", 120)
    assert min(score for _, score in everything) == 0.0
    with pytest.raises(RagError, match=r"no dictionary.*name values"):
        store.similarity_search("x", filter=lambda document: True)
    with pytest.raises(RagError, match=r"'\$near': there is no such operator"):
        store.similarity_search("x", filter={"topic": {"$near": 3}})
    with pytest.raises(TypeError, match="fliter"):
        store.similarity_search("x", fliter={"topic": 1})


def test_words_count_beside_the_embedding(store: ScotfreeVectorStore) -> None:
    question = "alpha1 alpha1 beta2 beta2 word88"
    without, with_words = (store.similarity_search(question, 3, with_words=has) for has in (False, True))
    assert "id88" not in [document.id for document in without]
    assert "id88" in [document.id for document in with_words]


def test_a_text_comes_back_whole_however_long_it_is(tmp_path: Path) -> None:
    texts = ["one. " * 2000, "  kept\n\nas it is ", ""]
    with (store := ScotfreeVectorStore(Words(), tmp_path / "index", keep="codes")).index:
        ids = store.add_texts(texts)
        assert [document.page_content for document in store.get_by_ids(ids)] == texts
        found = store.similarity_search("one.", 3)
        assert sorted(document.page_content for document in found) == sorted(texts)


def test_only_new_texts_are_embedded_and_many_at_once(tmp_path: Path) -> None:
    model = Uneven()
    store = ScotfreeVectorStore.from_texts(TEXTS, model, METADATA, ids=IDS, folder=tmp_path / "index")
    assert sorted(model.texts) == sorted(["text", *TEXTS]) and model.calls == 2
    store.add_texts([*TEXTS[:5], "a new one"], [{"topic": 9}] * 6, ids=[*IDS[:5], "new"])
    assert model.texts[-1:] == ["a new one"] and model.calls == 3
    assert [document.metadata for document in store.get_by_ids(["id4"])] == [{"topic": 9}]
    store.index.close()


def test_of_one_id_twice_the_last_counts(store: ScotfreeVectorStore) -> None:
    store.add_texts(["another", TEXTS[3]], [{}, METADATA[3]], ids=["id3", "id3"])
    assert [document.page_content for document in store.get_by_ids(["id3", "nobody", "id3"])] == [TEXTS[3]]


def test_ids_and_metadata_are_as_many_as_texts(store: ScotfreeVectorStore) -> None:
    with pytest.raises(ValueError, match="2 texts have 1 ids"):
        store.add_texts(["a", "b"], ids=["one"])
    with pytest.raises(ValueError, match="3 metadata"):
        store.add_texts(["a", "b"], [{}, {}, {}])
    assert len(store.index) == 120


def test_without_ids_all_are_forgotten(store: ScotfreeVectorStore) -> None:
    assert store.delete([]) and len(store.index) == 120
    assert store.delete() and len(store.index) == 0
    assert store.similarity_search("alpha1") == []


def test_what_cannot_be_written_down_is_refused_and_nothing_is_written(store: ScotfreeVectorStore) -> None:
    for text, metadata in (("x", {"at": object()}), ("x", {"part": float("nan")}), ("\udc80", {})):
        with pytest.raises(RagError, match=r"document 'bad'.*JSON"):
            store.add_texts(["good", text], [{}, metadata], ids=["good", "bad"])
    assert store.get_by_ids(["good", "bad"]) == []
    assert store.similarity_search("x", 1, filter={"topic": 1})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[0.0] * 4], "all zero"),
        ([[1.0, float("nan"), 0, 0]], "not all are numbers"),
        ([[1.0] * 5], "5 numbers, not 4"),
        ([[1.0] * 4] * 2, "1 texts have 2 vectors"),
    ],
)
def test_vectors_that_are_none_are_refused(tmp_path: Path, rows: list[list[float]], said: str) -> None:
    class Odd(Uneven):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return rows if texts == ["odd"] else [[1.0, 2, 3, 4] for _ in texts]

    with (store := ScotfreeVectorStore(Odd(), tmp_path / "index", keep="codes")).index:
        with pytest.raises(RagError, match=said):
            store.add_texts(["odd"])
        assert store.add_texts(["even"], ids=["even"]) == ["even"]


def test_an_index_is_opened_again_only_with_the_model_of_its_name(tmp_path: Path) -> None:
    ScotfreeVectorStore.from_texts(TEXTS[:9], Uneven(), folder=tmp_path / "index").index.close()
    with pytest.raises(RagError, match=r"another model \(Uneven uneven-2\)"):
        ScotfreeVectorStore(Uneven(), tmp_path / "index", name="mine")
    with (again := ScotfreeVectorStore(Uneven(), tmp_path / "index")).index:
        assert again.similarity_search(TEXTS[4], 1)[0].page_content == TEXTS[4]
        assert isinstance(again.embeddings, Uneven)


def test_an_index_of_documents_that_it_split_can_be_asked(tmp_path: Path) -> None:
    paragraphs = [" ".join(f"{name}{place}" for place in range(30)) for name in "abc"]
    rag.Index.build(
        tmp_path / "index", [rag.Document("long", "\n\n".join(paragraphs))], Words(), keep="codes"
    ).close()
    with (store := ScotfreeVectorStore(Words(), tmp_path / "index", keep="codes")).index:
        found = store.similarity_search(paragraphs[1], 1)
        assert found == [Document(id="long", page_content=paragraphs[1])]
        assert [document.page_content for document in store.get_by_ids(["long"])] == paragraphs
        assert store.embeddings is None


def test_it_can_be_changed_and_searched_on_many_threads(store: ScotfreeVectorStore) -> None:
    async def all_of_them() -> list[list[Document]]:
        changes = [store.aadd_texts([f"other{place}"], ids=[f"other{place}"]) for place in range(12)]
        deletions = [store.adelete([f"id{place}"]) for place in range(12, 24)]
        searches = [store.asimilarity_search(QUESTIONS[0], 5) for _ in range(12)]
        found = await asyncio.gather(*changes, *deletions, *searches)
        return found[-12:]

    for found in asyncio.run(all_of_them()):
        assert len({document.id for document in found}) == 5
    assert len(store.index) == 120
    assert set(store.index.documents()) == {*IDS[:12], *IDS[24:]} | {f"other{place}" for place in range(12)}


def test_few_texts_wait_for_more_before_clusters_are_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole, "CHANGES_MIN", 50)
    store = ScotfreeVectorStore(Words(), tmp_path / "index", keep="codes")
    for place in range(49):
        store.add_texts([TEXTS[place]])
    assert not list((tmp_path / "index").glob("codes-*"))
    store.add_texts([TEXTS[49]])
    assert len(list((tmp_path / "index").glob("codes-*"))) == 1
    store.index.close()
    with Index(tmp_path / "index", Words()) as again:
        assert again.search(TEXTS[7], 1).estimated == 50


def test_vectors_are_brought_to_length_one(store: ScotfreeVectorStore) -> None:
    hits = store.index.search("", 3, vector=np.eye(100, dtype=np.float32)[0]).hits
    assert np.linalg.norm(store.index.embeddings(hits), axis=1) == pytest.approx(np.ones(3), abs=1e-6)


def test_without_the_framework_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_core.documents", None)
    monkeypatch.delitem(sys.modules, "scotfree.rag.integrations.langchain")
    with pytest.raises(RagError, match=r"import langchain_core\.documents.*scotfree\[langchain\]"):
        importlib.import_module("scotfree.rag.integrations.langchain")
