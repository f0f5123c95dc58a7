"""An index as LlamaIndex's vector store.

```python
from llama_index.core import Document, StorageContext, VectorStoreIndex
from scotfree.rag import OnnxEmbedder
from scotfree.rag.integrations.llama_index import ScotfreeEmbedding, ScotfreeVectorStore

model = ScotfreeEmbedding(OnnxEmbedder())
storage = StorageContext.from_defaults(vector_store=ScotfreeVectorStore(model, "nodes.index"))
documents = [Document(text="A violin has four strings.")]
found = VectorStoreIndex.from_documents(documents, storage_context=storage, embed_model=model)
found.as_retriever(similarity_top_k=3).retrieve("what has strings?")
```

An index throws embeddings away and makes those that a search wants again from the text, so it must have the model
that the framework has, and the text that the framework embeds: a node's content with its metadata, as
`MetadataMode.EMBED` has it. Embeddings that come with nodes are taken as they are, so that nothing is embedded
twice, but of each call some are made again and compared. The node itself is kept as JSON beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.index import CACHE_BYTES, Index
from scotfree.rag.integrations.adapted import Adapted, Handed, ask, fitted, named
from scotfree.rag.integrations.whole import put, remove, whole
from scotfree.rag.passages import Text, Where
from scotfree.rag.searching import Hit
from scotfree.rag.settings import Keep
from scotfree.rag.trouble import RagError, missing

try:
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode, MetadataMode, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import (
        build_metadata_filter_fn,
        metadata_dict_to_node,
        node_to_metadata_dict,
    )
except ModuleNotFoundError as error:
    raise missing(error, "llama-index") from None

# Nodes of a call whose embeddings are made again, and how alike they must be: services round differently from call
# to call, other models and other texts are further away.
_CHECKED: Final = 8
_ALIKE: Final = 0.99
# Nodes among which `MMR` chooses, for each that is asked for.
_CANDIDATES: Final = 4
# Operators that the index has, too. Of a list `==` and the others want one of its values; without the key, or with
# nothing there, `!=` and `nin` are true. The others are read by the framework, node by node.
_OPERATORS: Final = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.CONTAINS: "$eq",
    FilterOperator.ANY: "$in",
}
# What a node is written as, in its own metadata.
_NODE: Final = "_node_content"
_DOCUMENT: Final = "ref_doc_id"


class ScotfreeEmbedding(BaseEmbedding):
    """One of this package's embedders as a model of LlamaIndex's."""

    _embedder: Embedder = PrivateAttr()

    def __init__(self, embedder: Embedder, **how: Any) -> None:
        super().__init__(model_name=embedder.name, **how)
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """What it was given."""
        return self._embedder

    def _get_query_embedding(self, query: str) -> list[float]:
        row: list[float] = ask(self._embedder, query).tolist()
        return row

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._embedder.embed(texts).tolist()
        return rows

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


class ScotfreeVectorStore(BasePydanticVectorStore):
    """Nodes in an index, whose similarity to a question is the cosine of their embeddings.

    What a change returns from is on the disk: `persist` has nothing to do, and the folder is opened again by its
    name. What is awaited is done on another thread.
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    _embedder: Embedder = PrivateAttr()
    _handed: Handed = PrivateAttr()
    _index: Index = PrivateAttr()

    def __init__(
        self,
        embed_model: BaseEmbedding,
        folder: Path | str,
        *,
        name: str | None = None,
        bits: float | None = None,
        keep: Keep | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Opens the index in `folder`, or begins one (see `Index`), with the model that the framework embeds with.

        `name` is what the model is known by: an index is not opened with one of another name. If nothing is said,
        that is its class and its model's name; what else decides the vectors has to be in a name.
        """
        super().__init__(stores_text=True, is_embedding_query=True)
        self._embedder = _embedder(embed_model, name)
        self._handed = Handed(self._embedder)
        self._index = Index(Path(folder), self._handed, bits=bits, keep=keep, cache_bytes=cache_bytes)

    @classmethod
    def class_name(cls) -> str:
        """What the framework calls it."""
        return "ScotfreeVectorStore"

    @property
    def client(self) -> Index:
        """The index."""
        return self._index

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Writes nodes, in place of those of their ids; returns the ids.

        Metadata must be what JSON can say. A `RagError` says if an embedding is not that of a node's text.
        """
        documents = [_whole(node) for node in nodes]
        known = [(text, node) for text, node in zip(documents, nodes, strict=True) if node.embedding is not None]
        vectors = fitted(self._embedder, [node.embedding for _, node in known])
        self._check([text for text, _ in known], vectors)
        with self._handed.handed({text.text: vector for (text, _), vector in zip(known, vectors, strict=True)}):
            put(self._index, documents)
        return [document.name for document in documents]

    async def async_add(self, nodes: Sequence[BaseNode], **how: Any) -> list[str]:
        """As `add`."""
        return await asyncio.to_thread(self.add, nodes, **how)

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Forgets the nodes of a document."""
        remove(self._index, self._index.documents({_DOCUMENT: ref_doc_id}))

    async def adelete(self, ref_doc_id: str, **how: Any) -> None:
        """As `delete`."""
        await asyncio.to_thread(self.delete, ref_doc_id, **how)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **_: Any
    ) -> None:
        """Forgets the nodes that have one of these ids and pass the filters: one of both must be given."""
        if node_ids is None and filters is None:
            raise RagError("forget nodes: neither ids nor filters say which", "for all of them, call clear")
        remove(self._index, self._names(node_ids, filters))

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **how: Any
    ) -> None:
        """As `delete_nodes`."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **how)

    def clear(self) -> None:
        """Forgets all nodes."""
        remove(self._index, self._index.documents())

    async def aclear(self) -> None:
        """As `clear`."""
        await asyncio.to_thread(self.clear)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes that have one of these ids and pass the filters, as far as they are given."""
        return [_node(text) for text in self._index.texts(self._names(node_ids, filters))]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """As `get_nodes`."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    def query(self, query: VectorStoreQuery, **how: Any) -> VectorStoreQueryResult:
        """The nodes nearest to a question, of those that the query's ids and filters let pass.

        Modes are `DEFAULT`, `HYBRID` (also by words, fused by ranks) and `MMR` (near it and unlike each other; it
        takes `mmr_threshold`). Otherwise it takes what `Index.search` takes: `probes`, `deviations`.
        """
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.HYBRID, VectorStoreQueryMode.MMR):
            raise RagError(f"search in the mode {query.mode.value}: there is none", "use default, hybrid or mmr")
        where = _where(query.node_ids or None, query.doc_ids, query.filters)
        if query.mode is VectorStoreQueryMode.MMR:
            return self._unlike(query, where, **how)
        is_hybrid = query.mode is VectorStoreQueryMode.HYBRID
        if is_hybrid and query.alpha is not None:
            raise RagError("weigh words against meaning: both count by their ranks", "leave out alpha")
        count = query.hybrid_top_k if is_hybrid and query.hybrid_top_k else query.similarity_top_k
        hits = self._hits(query, count, self._vector(query), where, with_words=is_hybrid, **how)
        return _result(hits, [hit.similarity for hit in hits])

    async def aquery(self, query: VectorStoreQuery, **how: Any) -> VectorStoreQueryResult:
        """As `query`."""
        return await asyncio.to_thread(self.query, query, **how)

    def _names(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> list[str]:
        """Of nodes; also of some that are not there, if only ids are given."""
        if node_ids is not None and filters is None:
            return list(dict.fromkeys(node_ids))
        return self._index.documents(_where(node_ids, None, filters))

    def _check(self, documents: Sequence[Document], vectors: Vectors) -> None:
        """Whether embeddings are those of their texts: of some, as each costs what it costs to make one."""
        places = np.unique(np.linspace(0, len(documents) - 1, min(_CHECKED, len(documents))).astype(int))
        made = self._embedder.embed([documents[place].text for place in places])
        for place, similarity in zip(places, (made * vectors[places]).sum(axis=1), strict=True):
            if similarity < _ALIKE:
                problem = f"add the node {documents[place].name}: its embedding is not that of its text"
                advice = (
                    "give the store the model that embeds the nodes, with their metadata as MetadataMode.EMBED"
                )
                raise RagError(f"{problem} by {self._embedder.name} (similarity {similarity:.2f})", advice)

    def _vector(self, query: VectorStoreQuery) -> Vectors:
        if query.query_embedding is None:
            return ask(self._embedder, query.query_str or "")
        row: Vectors = fitted(self._embedder, [query.query_embedding])[0]
        return row

    def _hits(self, query: VectorStoreQuery, count: int, vector: Vectors, where: Where, **how: Any) -> list[Hit]:
        return self._index.search(query.query_str or "", count, where=where, vector=vector, **how).hits

    def _unlike(
        self, query: VectorStoreQuery, where: Where, *, mmr_threshold: float | None = None, **how: Any
    ) -> VectorStoreQueryResult:
        vector = self._vector(query)
        hits = self._hits(query, _CANDIDATES * query.similarity_top_k, vector, where, **how)
        scores, places = get_top_k_mmr_embeddings(
            vector,
            list(self._index.embeddings(hits)),
            similarity_top_k=query.similarity_top_k,
            mmr_threshold=query.mmr_threshold if mmr_threshold is None else mmr_threshold,
        )
        return _result([hits[place] for place in places], [float(score) for score in scores])


def _embedder(model: BaseEmbedding, name: str | None) -> Embedder:
    if isinstance(model, ScotfreeEmbedding):
        return model.embedder
    return Adapted(name or named(model), model.get_text_embedding_batch, model.get_query_embedding)


def _whole(node: BaseNode) -> Document:
    text = node.get_content(metadata_mode=MetadataMode.EMBED)
    return whole(node.node_id, text, node_to_metadata_dict(node))


def _node(text: Text | Hit) -> BaseNode:
    """A node as it was, or a passage of a document that the index has split."""
    if _NODE in text.metadata:
        return metadata_dict_to_node(text.metadata)
    return TextNode(id_=f"{text.document}#{text.start}", text=text.text, metadata=text.metadata)


def _result(hits: Sequence[Hit], similarities: list[float]) -> VectorStoreQueryResult:
    nodes = [_node(hit) for hit in hits]
    return VectorStoreQueryResult(nodes, similarities, [node.node_id for node in nodes])


def _where(
    node_ids: Sequence[str] | None, doc_ids: Sequence[str] | None, filters: MetadataFilters | None
) -> Where:
    """Of which nodes all that is given is true."""
    every = MetadataFilters(filters=[filters] if filters else [])
    if doc_ids:
        every.filters.append(MetadataFilter(key=_DOCUMENT, value=list(doc_ids), operator=FilterOperator.IN))
    if node_ids is None and (found := _filter(every)) is not None:
        return found
    ids, passes = None if node_ids is None else set(node_ids), _passes(every)
    return lambda name, metadata: (ids is None or name in ids) and passes(metadata)


def _filter(filters: MetadataFilters) -> dict[str, Any] | None:
    """The same as the index has it, which SQLite finds far sooner; none, if a part of it has no such form."""
    parts = [_filter(each) if isinstance(each, MetadataFilters) else _term(each) for each in filters.filters]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        return None
    if not found:
        return {}
    if filters.condition is FilterCondition.OR:
        return {"$or": found}
    return {"$not": {"$or": found}} if filters.condition is FilterCondition.NOT else {"$and": found}


def _term(asked: MetadataFilter) -> dict[str, Any] | None:
    wanted, value = _OPERATORS.get(asked.operator), asked.value
    if asked.operator is FilterOperator.ALL and isinstance(value, list) and value:
        return {"$and": [{asked.key: {"$eq": each}} for each in value]}
    if wanted is None or value is None or isinstance(value, list) != (wanted in ("$in", "$nin")):
        return None
    return {asked.key: {wanted: value}}


_Passes = Callable[[dict[str, Any]], bool]


def _passes(filters: MetadataFilters) -> _Passes:
    """What a node's metadata must be: the framework's own reading of a filter, also of filters within filters."""
    parts = [_passes(each) if isinstance(each, MetadataFilters) else _leaf(each) for each in filters.filters]
    if not parts:
        return lambda _: True
    if filters.condition is FilterCondition.OR:
        return lambda metadata: any(part(metadata) for part in parts)
    if filters.condition is FilterCondition.NOT:
        return lambda metadata: not any(part(metadata) for part in parts)
    return lambda metadata: all(part(metadata) for part in parts)


def _leaf(asked: MetadataFilter) -> _Passes:
    alone = MetadataFilters(filters=[asked])
    return lambda metadata: bool(build_metadata_filter_fn(lambda _: metadata, alone)(""))
