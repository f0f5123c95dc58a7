"""Texts that somebody else has split, by their ids: each is a document of one passage, found whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.index import Index
from scotfree.rag.updating import check

# Frameworks may add one text at a time. Clusters and axes are learnt from so many at least; before, all are
# compared.
CHANGES_MIN: Final = 1000


def whole(name: str, text: str, metadata: dict[str, Any]) -> Document:
    """A text as a document; a `RagError` says if it cannot be written down."""
    document = Document(name, text, metadata, is_whole=True)
    check(document)
    return document


def put(index: Index, documents: Sequence[Document]) -> None:
    """Writes them, in place of those of their names."""
    index.update(documents)
    index.compact(changes_min=CHANGES_MIN)


def remove(index: Index, names: Iterable[str]) -> None:
    """Forgets those that there are."""
    index.remove(names)
    index.compact(changes_min=CHANGES_MIN)
