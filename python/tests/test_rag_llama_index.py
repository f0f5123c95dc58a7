"""LlamaIndex's store: beside its own, which looks at all, and through its own index and retriever."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import BaseNode, MetadataMode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

from bench.words import Words
from scotfree import rag
from scotfree.rag import RagError
from scotfree.rag.integrations import llama_index as integration
from scotfree.rag.integrations.llama_index import ScotfreeEmbedding, ScotfreeVectorStore

QUESTIONS = ["alpha1 beta2", "gamma0 word17", "alpha6 beta4 gamma2 word110"]
# At which hardly any bound is wrong.
SAFE = 5.0


class Uneven(BaseEmbedding):
    """Vectors of 100 numbers, none of length one; a question's is another than a text's."""

    _texts: list[str] = PrivateAttr(default_factory=list)

    def __init__(self) -> None:
        super().__init__(model_name="uneven-2")

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._vector(f"{query} query", 1e-3)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)

    def _get_text_embedding(self, text: str) -> list[float]:
        self._texts.append(text)
        return self._vector(text, 1 + len(text) % 9)

    def _vector(self, text: str, length: float) -> list[float]:
        vector: list[float] = (Words().embed([text])[0, :100] * length).tolist()
        return vector


def nodes(count: int = 120) -> list[TextNode]:
    """Of ten documents, embedded as the framework embeds them."""
    return [node.model_copy() for node in _made()[:count]]


@cache
def _made() -> list[TextNode]:
    made = []
    for place in range(120):
        node = TextNode(
            id_=f"node{place}",
            text=f"alpha{place % 7} beta{place % 5} gamma{place % 3} word{place}",
            metadata={"topic": place % 4, "kind": f"kind{place % 3}", "tags": [f"tag{place % 2}", "any"]},
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"source{place % 10}")},
            excluded_embed_metadata_keys=["topic", "tags"],
        )
        node.embedding = Uneven().get_text_embedding(node.get_content(metadata_mode=MetadataMode.EMBED))
        made.append(node)
    return made


@pytest.fixture
def model() -> Uneven:
    return Uneven()


@pytest.fixture(params=["pending", "snapshot"])
def store(request: pytest.FixtureRequest, tmp_path: Path, model: Uneven) -> Iterator[ScotfreeVectorStore]:
    made = ScotfreeVectorStore(model, tmp_path / "index", keep="codes")
    assert made.add(nodes()) == [node.node_id for node in nodes()]
    if request.param == "snapshot":
        made.client.compact()
    with made.client:
        yield made


@pytest.fixture
def peer() -> SimpleVectorStore:
    made = SimpleVectorStore()
    made.add(nodes())
    return made


def asked(question: str, count: int = 9, **how: Any) -> VectorStoreQuery:
    vector = Uneven().get_query_embedding(question)
    return VectorStoreQuery(query_embedding=vector, query_str=question, similarity_top_k=count, **how)


def same(store: ScotfreeVectorStore, peer: SimpleVectorStore, query: VectorStoreQuery, **how: Any) -> list[str]:
    """The ids that both find."""
    found, wanted = store.query(query, deviations=SAFE, **how), peer.query(query, **how)
    assert found.similarities == pytest.approx(wanted.similarities, abs=1e-5)
    assert found.ids == wanted.ids == [node.node_id for node in found.nodes or []]
    return list(wanted.ids)


def test_it_finds_what_llamaindexs_own_store_finds(store: ScotfreeVectorStore, peer: SimpleVectorStore) -> None:
    for question in QUESTIONS:
        assert len(same(store, peer, asked(question))) == 9
        plain = VectorStoreQuery(query_str=question, similarity_top_k=9)
        assert store.query(plain, deviations=SAFE).ids == peer.query(asked(question)).ids


@pytest.mark.parametrize("threshold", [0.2, 0.5, 1.0])
def test_it_chooses_unlike_ones_as_llamaindexs_own_store(
    store: ScotfreeVectorStore, peer: SimpleVectorStore, threshold: float
) -> None:
    for question in QUESTIONS:
        # As many candidates as there are.
        query = asked(question, 30, mode=VectorStoreQueryMode.MMR)
        same(store, peer, query, mmr_threshold=threshold)
    own = asked(QUESTIONS[0], 30, mode=VectorStoreQueryMode.MMR, mmr_threshold=threshold)
    assert store.query(own).ids == store.query(asked(QUESTIONS[0], 30, mode=own.mode), mmr_threshold=threshold).ids


def one(key: str, value: Any, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilter:
    return MetadataFilter(key=key, value=value, operator=operator)


@pytest.mark.parametrize(
    "filters",
    [
        MetadataFilters(filters=[one("topic", 2)]),
        MetadataFilters(filters=[one("topic", [1, 3], FilterOperator.IN), one("kind", "kind1")]),
        MetadataFilters(
            filters=[one("topic", [0, 1], FilterOperator.IN), one("topic", [1, 2], FilterOperator.IN)]
        ),
        MetadataFilters(filters=[one("topic", 0), one("kind", "kind2")], condition=FilterCondition.OR),
        MetadataFilters(filters=[one("topic", 0), one("kind", "kind2")], condition=FilterCondition.NOT),
        MetadataFilters(filters=[one("topic", 1, FilterOperator.GT), one("topic", 3, FilterOperator.NE)]),
        MetadataFilters(filters=[one("topic", 1, FilterOperator.GTE), one("topic", 2, FilterOperator.LTE)]),
        MetadataFilters(filters=[one("topic", 1, FilterOperator.LT)]),
        MetadataFilters(filters=[one("topic", [0, 3], FilterOperator.NIN)]),
        MetadataFilters(filters=[one("topic", 0), one("nothing", 3, FilterOperator.NE)]),
        MetadataFilters(filters=[one("topic", 0), one("nothing", [3], FilterOperator.NIN)]),
        MetadataFilters(filters=[one("tags", "tag1", FilterOperator.CONTAINS)]),
        MetadataFilters(filters=[one("tags", ["tag0", "no"], FilterOperator.ANY)]),
        MetadataFilters(filters=[one("tags", ["tag0", "any"], FilterOperator.ALL)]),
        MetadataFilters(filters=[one("kind", "nd2", FilterOperator.TEXT_MATCH)]),
        MetadataFilters(filters=[one("kind", "ND2", FilterOperator.TEXT_MATCH_INSENSITIVE)]),
        MetadataFilters(filters=[one("nothing", None, FilterOperator.IS_EMPTY), one("topic", 3)]),
        MetadataFilters(filters=[]),
    ],
    ids=str,
)
def test_filters_are_as_llamaindex_reads_them(
    store: ScotfreeVectorStore, peer: SimpleVectorStore, filters: MetadataFilters
) -> None:
    ids = same(store, peer, asked(QUESTIONS[1], 200, filters=filters))
    assert 0 < len(ids) < 120 or not filters.filters
    assert {node.node_id for node in store.get_nodes(filters=filters)} == set(ids)


def test_what_sqlite_can_say_is_asked_of_no_node(
    store: ScotfreeVectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked_of_a_node(*_: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(integration, "_passes", lambda _: asked_of_a_node)
    nor = MetadataFilters(filters=[one("topic", [0], FilterOperator.NIN)], condition=FilterCondition.NOT)
    every = MetadataFilters(filters=[nor, one("topic", 3, FilterOperator.LT), one("tags", "any")])
    assert {node.metadata["topic"] for node in store.get_nodes(filters=every)} == {0}
    with pytest.raises(AssertionError):
        store.get_nodes(filters=MetadataFilters(filters=[one("kind", "kind", FilterOperator.TEXT_MATCH)]))


def test_filters_may_stand_in_filters(store: ScotfreeVectorStore) -> None:
    either = MetadataFilters(filters=[one("topic", 1), one("topic", 2)], condition=FilterCondition.OR)
    both = MetadataFilters(filters=[either, one("kind", "kind0")])
    wanted = {f"node{place}" for place in range(0, 120, 3) if place % 4 in (1, 2)}
    assert set(store.query(asked(QUESTIONS[0], 200, filters=both)).ids or []) == wanted


def test_ids_of_nodes_and_documents_narrow_a_search(store: ScotfreeVectorStore) -> None:
    def found(**how: Any) -> set[str]:
        return set(store.query(asked(QUESTIONS[0], 200, **how)).ids or [])

    assert found(node_ids=["node3", "node4", "nobody"]) == {"node3", "node4"}
    of_two = {f"node{place}" for place in range(120) if place % 10 in (3, 7)}
    assert found(doc_ids=["source3", "source7"]) == of_two
    assert found(doc_ids=["source3"], node_ids=["node3", "node4"]) == {"node3"}
    assert found(doc_ids=["source3"], filters=MetadataFilters(filters=[one("topic", 3)])) == {
        f"node{place}" for place in range(3, 120, 20)
    }
    assert len(found(node_ids=[], doc_ids=[])) == 120, "an index without nodes of its own names none"


def test_words_count_beside_the_embedding(store: ScotfreeVectorStore) -> None:
    query = asked("alpha1 beta2", 3)
    query.query_str = "word88"
    assert "node88" not in (store.query(query).ids or [])
    query.mode = VectorStoreQueryMode.HYBRID
    assert "node88" in (store.query(query).ids or [])
    query.hybrid_top_k = 5
    assert len(store.query(query).ids or []) == 5
    query.alpha = 0.7
    with pytest.raises(RagError, match=r"both count by their ranks.*leave out alpha"):
        store.query(query)
    with pytest.raises(RagError, match=r"mode sparse.*use default"):
        store.query(asked("x", mode=VectorStoreQueryMode.SPARSE))


def test_a_node_comes_back_as_it_was(store: ScotfreeVectorStore) -> None:
    wanted = nodes()[17]
    wanted.embedding = None
    assert store.get_nodes(["node17", "nobody", "node17"]) == [wanted]
    assert store.get_nodes(["node17", "node18"], MetadataFilters(filters=[one("topic", 1)])) == [wanted]
    # A text that contains its metadata is not the node's.
    (found,) = store.query(asked(QUESTIONS[0], 1, node_ids=["node17"])).nodes or []
    assert found == wanted and isinstance(found, TextNode) and found.text == wanted.text


def test_what_the_framework_embedded_is_not_embedded_again_but_some(tmp_path: Path, model: Uneven) -> None:
    with (store := ScotfreeVectorStore(model, tmp_path / "index")).client:
        model._texts.clear()
        store.add(nodes())
        contents = [node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes()]
        assert len(model._texts) == 8 and {contents[0], contents[-1]} <= set(model._texts) <= set(contents)
        model._texts.clear()
        new = TextNode(id_="new", text="without an embedding")
        assert store.add([new]) == ["new"] and model._texts == ["without an embedding"]
        model._texts.clear()
        store.query(asked(QUESTIONS[0]))
        assert model._texts == []


def test_an_embedding_that_is_not_the_texts_is_refused(tmp_path: Path, model: Uneven) -> None:
    with (store := ScotfreeVectorStore(model, tmp_path / "index")).client:
        made = nodes(3)
        made[2].embedding = made[1].embedding
        with pytest.raises(RagError, match=r"add the node node2: its embedding is not that of its text by Uneven"):
            store.add(made)
        # The text without its metadata is another.
        made = nodes(1)
        made[0].embedding = model.get_text_embedding(made[0].text)
        with pytest.raises(RagError, match=r"MetadataMode\.EMBED"):
            store.add(made)
        made[0].embedding = [1.0] * 99
        with pytest.raises(RagError, match="99 numbers, not 100"):
            store.add(made)
        assert len(store.client) == 0
        with pytest.raises(RagError, match="3 numbers, not 100"):
            store.query(VectorStoreQuery(query_embedding=[1.0, 2, 3]))


def test_nodes_are_forgotten_by_document_by_id_and_by_filter(store: ScotfreeVectorStore) -> None:
    store.delete("source3")
    assert len(store.client) == 108 and "node13" not in store.client.documents()
    store.delete_nodes(["node0", "node13", "nobody"])
    assert len(store.client) == 107
    store.delete_nodes(["node1", "node2"], MetadataFilters(filters=[one("topic", 2)]))
    assert len(store.client) == 106 and "node1" in store.client.documents()
    store.delete_nodes(filters=MetadataFilters(filters=[one("topic", 1)]))
    assert {node.metadata["topic"] for node in store.get_nodes()} == {0, 2, 3}
    with pytest.raises(RagError, match="call clear"):
        store.delete_nodes()
    store.clear()
    assert store.get_nodes() == [] and store.query(asked("x")).ids == []


def test_what_is_awaited_does_the_same(store: ScotfreeVectorStore) -> None:
    async def all_of_it() -> tuple[list[str], list[BaseNode], list[str]]:
        found = await store.aquery(asked(QUESTIONS[0]))
        await store.async_add([TextNode(id_="new", text="a new one")])
        await asyncio.gather(store.adelete("source1"), store.adelete_nodes(["node0"]))
        nodes = await store.aget_nodes(["new", "node0", "node1", "node2"])
        await store.aclear()
        return list(found.ids or []), nodes, list((await store.aquery(asked("x"))).ids or [])

    wanted = store.query(asked(QUESTIONS[0])).ids
    found, left, nothing = asyncio.run(all_of_it())
    assert found == wanted and sorted(node.node_id for node in left) == ["new", "node2"] and nothing == []


class Asked(Words):
    """Embeds a question otherwise than a text."""

    def embed_questions(self, questions: Sequence[str]) -> Any:
        return self.embed([f"ask {question}" for question in questions])


def test_questions_are_embedded_as_questions() -> None:
    model = ScotfreeEmbedding(Asked())
    assert model.get_query_embedding("cats") == Words().embed(["ask cats"])[0].tolist()
    assert model.get_text_embedding("cats") == Words().embed(["cats"])[0].tolist()


def test_an_index_of_the_frameworks_stands_on_it(tmp_path: Path) -> None:
    model = ScotfreeEmbedding(Words())
    texts = {"violin": "A violin has four strings.", "drum": "Drums are struck with sticks."}
    documents = [Document(text=text, id_=name, metadata={"name": name}) for name, text in texts.items()]
    storage = StorageContext.from_defaults(vector_store=ScotfreeVectorStore(model, tmp_path / "index"))
    index = VectorStoreIndex.from_documents(documents, storage_context=storage, embed_model=model)
    assert [found.text for found in index.as_retriever(similarity_top_k=1).retrieve("four strings.")] == [
        texts["violin"]
    ]
    storage.persist(tmp_path / "storage")
    index.delete_ref_doc("violin")
    storage.vector_store.client.close()
    # Opened by its folder alone, on a loop.
    with (store := ScotfreeVectorStore(model, tmp_path / "index")).client:
        again = VectorStoreIndex.from_vector_store(store, embed_model=model, use_async=True)
        again.insert(Document(text="A cello is larger, and has four strings, too.", id_="cello"))
        retriever = again.as_retriever(similarity_top_k=5)
        found = asyncio.run(retriever.aretrieve("four strings, too."))
        assert [node.node.ref_doc_id for node in found] == ["cello", "drum"]
        assert found[1].metadata == {"name": "drum"} and (found[0].score or 0) > 0.3


def test_an_index_is_opened_again_only_with_the_model_of_its_name(tmp_path: Path, model: Uneven) -> None:
    with (store := ScotfreeVectorStore(model, tmp_path / "index")).client:
        store.add(nodes(9))
    with pytest.raises(RagError, match=r"another model \(Uneven uneven-2\)"):
        ScotfreeVectorStore(model, tmp_path / "index", name="mine")
    with (again := ScotfreeVectorStore(model, tmp_path / "index")).client:
        assert len(again.get_nodes()) == 9


def test_an_index_of_documents_that_it_split_can_be_asked(tmp_path: Path) -> None:
    paragraphs = [" ".join(f"{name}{place}" for place in range(30)) for name in "abc"]
    rag.Index.build(
        tmp_path / "index", [rag.Document("long", "\n\n".join(paragraphs), {"topic": 1})], Words()
    ).close()
    with (store := ScotfreeVectorStore(ScotfreeEmbedding(Words()), tmp_path / "index")).client:
        (found,) = store.query(VectorStoreQuery(query_str=paragraphs[1])).nodes or []
        assert isinstance(found, TextNode) and found.text == paragraphs[1] and found.metadata == {"topic": 1}
        assert found.node_id == f"long#{len(paragraphs[0]) + 2}"


def test_without_the_framework_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_index.core.schema", None)
    monkeypatch.delitem(sys.modules, "scotfree.rag.integrations.llama_index")
    with pytest.raises(RagError, match=r"import llama_index\.core\.schema.*scotfree\[llama-index\]"):
        importlib.import_module("scotfree.rag.integrations.llama_index")
