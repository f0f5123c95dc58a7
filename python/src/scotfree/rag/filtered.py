"""An index whose filters hold while others change it.

A search asks first which passages a filter leaves out, and then for what is near; of what somebody puts in or
changes between the two it knows nothing. So what was found is looked at once more, as it is then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from scotfree.rag import index
from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.index import BITS, Answer, Hit
from scotfree.rag.passages import Where
from scotfree.rag.trouble import RagError

# Searches for one question before what passes of the last one has to do.
_SEARCHES_MAX: Final = 3


class Index(index.Index):
    """As `scotfree.rag.index.Index`; nothing is found in it that a search's filter does not let through."""

    @classmethod
    def build(
        cls, folder: Path, documents: Iterable[Document], embedder: Embedder, *, bits: float = BITS
    ) -> Index:
        """An index of these documents; what of them is in the folder already is not embedded again."""
        built = super().build(folder, documents, embedder, bits=bits)
        assert isinstance(built, cls)
        return built

    def __enter__(self) -> Index:
        return self

    def search(self, question: str, count: int = 10, *, where: Where | None = None, **how: Any) -> Answer:
        """The passages nearest to a question, of documents whose metadata are as `where` says.

        `where` has a value for each of some keys, or one of several; or it is a function of name and metadata that
        says true. The rest is as in `scotfree.rag.index.Index.search`: `with_words`, `probes`, `deviations`,
        `vector`. While much is changed there may be fewer than `count`.
        """
        if where is not None and not isinstance(where, Mapping) and not callable(where):
            raise RagError(f"look only in documents with {where!r}", 'say keys and values: {"key": "value"}')
        answer = Answer()
        for _ in range(_SEARCHES_MAX):
            answer = super().search(question, count, where=where, **how)
            passing = [hit for hit in answer.hits if where is None or _passes(hit, where)]
            if len(passing) == len(answer.hits):
                break
            answer.hits = passing
        return answer


def _passes(hit: Hit, where: Where) -> bool:
    if callable(where):
        return where(hit.document, hit.metadata)
    return all(key in hit.metadata and _is_one_of(hit.metadata[key], value) for key, value in where.items())


def _is_one_of(value: Any, wanted: Any) -> bool:
    several = list(wanted) if isinstance(wanted, list | tuple | set | frozenset) else [wanted]
    return value in several
