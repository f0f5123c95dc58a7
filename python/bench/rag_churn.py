"""An index after many changes, beside one that was made anew of what is there then.

Of a collection's documents most are there at first; as many as 30 % of those are removed and as many others put
in, a few at a time, and the index compacts itself when it sees fit.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bench import rag_collections
from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder, Vectors
from scotfree.rag.evaluation.corpus import Part
from scotfree.rag.evaluation.exact import COUNT, Exact
from scotfree.rag.evaluation.prepared import Prepared
from scotfree.rag.index import Index

_SHARE: Final = 0.3
# Documents that are removed and put in between two looks at whether to compact.
_STEP: Final = 0.02


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is the collection."""
    prepared = rag_collections.prepared(arm, settings["questions"])
    documents = [
        prepared.collection.documents[at]
        for at in np.random.default_rng(1).permutation(len(prepared.collection.documents))
    ]
    at_first = round(len(documents) / (1 + _SHARE))
    first, gone, new = documents[:at_first], documents[: len(documents) - at_first], documents[at_first:]
    there = documents[len(gone) :]
    folder, asked = prepared.base / "churn", _Counting(prepared.known)
    shutil.rmtree(folder, ignore_errors=True)
    with Index.build(folder / "changed", first, asked, keep="codes") as index:
        asked.texts.clear()
        compactions, embedded = _change(index, gone, new), list(asked.texts)
        changed = _recall(index, prepared, there)
    put_in = _texts(prepared, new)
    with Index.build(folder / "anew", there, prepared.known, keep="codes") as index:
        anew = _recall(index, prepared, there)
    return {
        "documents": len(there),
        "compactions": compactions,
        "embedded": len(embedded),
        "embedded_again": sum(text not in put_in for text in embedded),
        "recall": changed,
        "recall_anew": anew,
        "points_lost": 100 * (anew - changed),
    }


class _Counting:
    """An embedder that notes what it is asked for."""

    def __init__(self, of: Embedder) -> None:
        self.name, self.digest, self.dimensions = of.name, of.digest, of.dimensions
        self.tokens_max, self.count_tokens = of.tokens_max, of.count_tokens
        self.texts: list[str] = []
        self._of = of

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return self._of.embed(texts)


def _change(index: Index, gone: Sequence[Document], new: Sequence[Document]) -> int:
    """How often it compacted itself."""
    step = max(1, round(_STEP * len(gone)))
    compactions = 0
    for at in range(0, max(len(gone), len(new)), step):
        index.remove([document.name for document in gone[at : at + step]])
        index.update(new[at : at + step])
        compactions += index.compact()
    return compactions


def _texts(prepared: Prepared, documents: Sequence[Document]) -> set[str]:
    names = {document.name for document in documents}
    return {part.embedded for part in prepared.parts if part.document in names}


def _recall(index: Index, prepared: Prepared, there: Sequence[Document]) -> float:
    """Beside exact search over what is there."""
    names = {document.name for document in there}
    rows = [row for row, part in enumerate(prepared.parts) if part.document in names]
    parts: list[Part] = [prepared.parts[row] for row in rows]
    exact = Exact(parts, prepared.vectors[rows])
    places = {(part.document, part.start): row for row, part in enumerate(parts)}
    nearest = exact.nearest(prepared.questions, 1)
    shares = []
    for question, vector, best in zip(
        prepared.collection.questions.values(), prepared.questions, nearest, strict=True
    ):
        hits = index.search(question, COUNT).hits
        shares.append(exact.share(vector, best, [places[hit.document, hit.start] for hit in hits]))
    return float(np.mean(shares))
