"""An index as LangChain's vector store.

```python
from langchain_core.embeddings import DeterministicFakeEmbedding
from scotfree.rag.integrations.langchain import ScotfreeVectorStore

store = ScotfreeVectorStore(DeterministicFakeEmbedding(size=384), "texts.index", name="an example's")
store.add_texts(["A violin has four strings."], [{"kind": "instrument"}], ids=["violin"])
store.similarity_search("what has strings?", k=3, filter={"kind": "instrument"})
```

Each text is found whole, under its id. Of an index that holds documents which it has split, passages are found;
their id is the name of their document.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.index import CACHE_BYTES, Index
from scotfree.rag.integrations.adapted import Adapted, ask, fitted, named
from scotfree.rag.integrations.whole import put, remove, whole
from scotfree.rag.searching import Hit
from scotfree.rag.settings import Keep
from scotfree.rag.trouble import RagError, missing

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ModuleNotFoundError as error:
    raise missing(error, "langchain") from None


class ScotfreeVectorStore(VectorStore):
    """Texts in an index, whose similarity to a question is the cosine of their embeddings.

    Searches also take what `Index.search` takes: `with_words`, `probes`, `deviations`, `where`. What is awaited is
    done on another thread.
    """

    def __init__(
        self,
        embedding: Embeddings | Embedder,
        folder: Path | str,
        *,
        name: str | None = None,
        bits: float | None = None,
        keep: Keep | None = None,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        """Opens the index in `folder`, or begins one (see `Index`).

        `name` is what an `embedding` of LangChain's is known by: an index is not opened with one of another name.
        If nothing is said, that is its class and its model; what else decides the vectors has to be in a name.
        """
        self._embeddings = embedding if isinstance(embedding, Embeddings) else None
        self._embedder = _embedder(embedding, name)
        self.index = Index(Path(folder), self._embedder, bits=bits, keep=keep, cache_bytes=cache_bytes)

    @property
    def embeddings(self) -> Embeddings | None:
        """What it was given, if that is LangChain's."""
        return self._embeddings

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | Embedder,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        folder: Path | str,
        **how: Any,
    ) -> ScotfreeVectorStore:
        """A store with these texts in the index in `folder`, beside those that are there."""
        store = cls(embedding, folder, **how)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        **_: Any,
    ) -> list[str]:
        """Writes texts, in place of those of their ids; returns the ids, made up where none is given.

        Metadata must be what JSON can say. `ValueError`: there are not as many of them, or of ids, as texts.
        """
        texts = list(texts)
        names = [name or str(uuid.uuid4()) for name in ids or [None] * len(texts)]
        metadatas = metadatas or [{} for _ in texts]
        if not len(names) == len(metadatas) == len(texts):
            raise ValueError(f"{len(texts)} texts have {len(names)} ids and {len(metadatas)} metadata")
        put(self.index, [whole(*one) for one in zip(names, texts, metadatas, strict=True)])
        return names

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Forgets the texts of these ids, all if none are given; others are no error."""
        remove(self.index, self.index.documents() if ids is None else ids)
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The texts of these ids, in their order; unknown ones are left out."""
        found = self.index.texts(dict.fromkeys(ids))
        return [Document(id=text.document, page_content=text.text, metadata=text.metadata) for text in found]

    def similarity_search(self, query: str, k: int = 4, **how: Any) -> list[Document]:
        """The `k` texts nearest to a question; `filter` says what their metadata must be (see `rag.filters`)."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **how)]

    def similarity_search_with_score(self, query: str, k: int = 4, **how: Any) -> list[tuple[Document, float]]:
        """As `similarity_search`, each with its cosine with the question."""
        hits = self._hits(query, ask(self._embedder, query), k, **how)
        return [(_document(hit), hit.similarity) for hit in hits]

    def similarity_search_by_vector(self, embedding: list[float], k: int = 4, **how: Any) -> list[Document]:
        """As `similarity_search`, for the embedding of a question, of whatever length."""
        return [_document(hit) for hit in self._hits("", fitted(self._embedder, [embedding])[0], k, **how)]

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **how: Any
    ) -> list[Document]:
        """Of the `fetch_k` texts nearest to a question `k` that are near it and unlike each other.

        Those that no search has embedded of late are embedded again.
        """
        hits = self._hits(query, vector := ask(self._embedder, query), fetch_k, **how)
        return self._unlike(hits, vector, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **how: Any
    ) -> list[Document]:
        """As `max_marginal_relevance_search`, for the embedding of a question."""
        vector = fitted(self._embedder, [embedding])[0]
        return self._unlike(self._hits("", vector, fetch_k, **how), vector, k, lambda_mult)

    def _hits(self, question: str, vector: Vectors, count: int, *, filter: Any = None, **how: Any) -> list[Hit]:
        if filter is not None:
            how["where"] = _values(filter)
        return self.index.search(question, count, vector=vector, **how).hits

    def _unlike(self, hits: list[Hit], vector: Vectors, count: int, weight: float) -> list[Document]:
        rows = list(self.index.embeddings(hits))
        chosen = maximal_marginal_relevance(vector, rows, lambda_mult=weight, k=count)
        return [_document(hits[place]) for place in chosen]

    def _select_relevance_score_fn(self) -> Any:
        # Rounding may take a cosine beyond one; what is less than unlike is not relevant.
        return lambda similarity: min(max(similarity, 0.0), 1.0)


def _embedder(embedding: Embeddings | Embedder, name: str | None) -> Embedder:
    if isinstance(embedding, Embeddings):
        return Adapted(name or named(embedding), embedding.embed_documents, embedding.embed_query)
    return embedding


def _values(asked: Any) -> Mapping[str, Any]:
    if not isinstance(asked, Mapping):
        raise RagError(
            f"filter by {asked!r}: it is no dictionary of what metadata have",
            'name values, as {"kind": "instrument"}, or give `where` a function of id and metadata',
        )
    return asked


def _document(hit: Hit) -> Document:
    return Document(id=hit.document, page_content=hit.text, metadata=hit.metadata)
