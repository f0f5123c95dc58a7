"""Axes: bits where residuals vary, and codes of embeddings of any number of dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from scotfree import _native
from scotfree.rag import axes
from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.index import Index
from scotfree.rag.lending import lent

_CHANCE = np.random.default_rng(4)


class Drawn:
    """Embeds texts that are numbers as the vectors that were drawn for them."""

    name, tokens_max = "drawn", 64

    def __init__(self, vectors: Vectors) -> None:
        self.vectors = vectors
        self.dimensions = vectors.shape[1]
        self.digest = bytes(32)

    def embed(self, texts: Sequence[str]) -> Vectors:
        return self.vectors[[int(text) for text in texts]]

    def count_tokens(self, text: str) -> int:
        return len(text)


def _uneven(count: int, dimensions: int) -> Vectors:
    """Of length one, and far apart in the first dimensions only."""
    values = _CHANCE.standard_normal((count, dimensions)) / (1 + np.arange(dimensions))
    found: Vectors = (values / np.linalg.norm(values, axis=1, keepdims=True)).astype(np.float32)
    return found


def _found(vectors: Vectors, folder: Path, bits: float) -> tuple[float, float]:
    """Of 20 of them as questions: the share of the ten nearest that is found, and how many were embedded again."""
    hits = again = 0
    with Index.build(
        folder, [Document(str(at), str(at)) for at in range(len(vectors))], Drawn(vectors), bits=bits, keep="codes"
    ) as index:
        for at in range(20):
            answer = index.search(str(at), 10)
            nearest = np.argsort(-(vectors @ vectors[at]), kind="stable")[:10]
            hits += len({int(hit.document) for hit in answer.hits} & set(nearest.tolist()))
            again += answer.cached + answer.regenerated
    return hits / 200, again / 20


@pytest.mark.parametrize("dimensions", [6, 48, 100])
def test_embeddings_of_any_number_of_dimensions_are_found(tmp_path: Path, dimensions: int) -> None:
    recall, again = _found(_uneven(600, dimensions), tmp_path / "index", 2)
    assert recall >= 0.98
    assert again < 60


def test_more_bits_need_fewer_exact_values_and_many_need_none(tmp_path: Path) -> None:
    vectors = _uneven(600, 100)
    few, some, many = (_found(vectors, tmp_path / str(bits), bits) for bits in (0.64, 2, 4))
    assert few[1] > some[1] > many[1] == 0
    assert many[0] > 0.9


@pytest.mark.parametrize(
    ("dimensions", "bits", "wanted"), [(384, 5 / 6, 320), (384, 4, 1536), (384, 0.001, 64), (6, 1, 36), (6, 9, 36)]
)
def test_a_code_has_whole_words_of_bits_or_all_that_its_dimensions_take(
    dimensions: int, bits: float, wanted: int
) -> None:
    assert axes.bits_of(dimensions, bits) == wanted


def test_what_are_no_axes_is_refused() -> None:
    one = np.ones(1, np.float32)
    with pytest.raises(ValueError, match="axis 0 has not the length 1"):
        _native.Axes(lent(2 * one), lent(one), lent(one), lent(one.astype(np.uint32)), rest=0, dimensions=1)
    with pytest.raises(ValueError, match="one step, one error and one depth"):
        _native.Axes(
            lent(one), lent(np.ones(2, np.float32)), lent(one), lent(one.astype(np.uint32)), rest=0, dimensions=1
        )
