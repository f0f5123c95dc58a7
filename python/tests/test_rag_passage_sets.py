"""Passages that a search leaves out: as bits in Rust they are what a set of Python's is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.words import DIMENSIONS, Words
from scotfree import _native
from scotfree.rag import Document, Index, RagError
from scotfree.rag.lending import lent

PASSAGES = 400
COUNT = 7
# A bound that is never wrong.
CAREFUL = 8.0
LAST = 2**32 - 1
# Around the ends of words and pages, and anywhere.
NUMBERS = st.one_of(
    st.sampled_from([0, 1, 63, 64, 65, 65_535, 65_536, 131_072, LAST - 1, LAST]),
    st.integers(0, 300),
    st.integers(0, LAST),
)
SETS = st.sets(NUMBERS, max_size=40)


@settings(max_examples=50, deadline=None)
@given(left=SETS, right=SETS, asked=st.lists(NUMBERS, max_size=40))
def test_a_set_is_what_pythons_is(left: set[int], right: set[int], asked: list[int]) -> None:
    ours, other = _native.PassageSet(list(left)), _native.PassageSet(list(right))
    both = ours | other
    for mine, plain in ((ours, left), (other, right), (both, left | right)):
        assert (len(mine), bool(mine)) == (len(plain), bool(plain))
        assert [number in mine for number in asked] == [number in plain for number in asked]
        assert list(mine.has(lent(np.array(asked, np.uint32)))) == [number in plain for number in asked]


@pytest.fixture(scope="module", params=[4, None], ids=["codes", "rows"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Most of its passages are in a snapshot, some in none, some gone."""
    folder = tmp_path_factory.mktemp("sets") / "index"
    texts = {f"{at}": f"word{at % 29} word{at % 31} word{at}" for at in range(PASSAGES)}
    documents = [Document(name, text, {"at": int(name)}) for name, text in texts.items()]
    with Index.build(folder, documents[:-20], Words(), bits=request.param) as built:
        built.add(documents[-20:])
        built.remove(["3", "77"])
        yield built


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.97, 1.0])
def test_a_search_finds_what_is_inside_in_the_order_of_all(index: Any, share: float) -> None:
    chance = np.random.default_rng(round(100 * share))
    vector = chance.standard_normal(DIMENSIONS).astype(np.float32)
    vector /= np.linalg.norm(vector)
    every = index.search("", PASSAGES, vector=vector, deviations=CAREFUL).hits
    assert len(every) == PASSAGES - 2
    for _ in range(5):
        inside = {at for at in range(PASSAGES) if chance.random() >= share}
        where = partial(_is_inside, inside)
        found = index.search("", COUNT, vector=vector, deviations=CAREFUL, where=where).hits
        assert found == [hit for hit in every if hit.metadata["at"] in inside][:COUNT]


def _is_inside(inside: set[int], _: str, metadata: dict[str, Any]) -> bool:
    return metadata["at"] in inside


def test_what_a_filter_found_is_kept_until_something_changes(tmp_path: Path) -> None:
    documents = [Document(name, f"one {name}", {"kind": name[0]}) for name in ("a1", "a2", "b1")]
    with Index.build(tmp_path / "index", documents, Words()) as built:
        asked = _counted(built)
        for _ in range(3):
            assert (_found(built, {"kind": "a"}), _found(built, {"kind": "b"})) == (["a1", "a2"], ["b1"])
        assert len(asked) == 2
        built.add([Document("b1", "one b1", {"kind": "a"})])
        assert (_found(built, {"kind": "a"}), _found(built, {"kind": "b"})) == (["a1", "a2", "b1"], [])
        assert len(asked) == 4
        with Index(tmp_path / "index", Words()) as another:
            another.add([Document("b2", "one b2", {"kind": "b"})])
        built.refresh()
        assert _found(built, {"kind": "b"}) == ["b2"]
        for at in range(100):
            _found(built, {"kind": f"{at}"})
        assert len(built.passages._kept_outside) < 20


def _found(index: Index, where: dict[str, Any]) -> list[str]:
    return sorted(hit.document for hit in index.search("one", where=where).hits)


def _counted(index: Index) -> list[Any]:
    """Filters that the file is asked for, from now on."""
    asked: list[Any] = []
    ask = index.passages._outside

    def counting(wanted: Any) -> _native.PassageSet:
        asked.append(wanted)
        return ask(wanted)

    index.passages._outside = counting  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize("said", ["[[1,2]", "[[1]]", "[[1,0]]", "[[4294967295,2]]", "[[-1,2]]", "null", "[1,2]"])
def test_damaged_runs_are_told(tmp_path: Path, said: str) -> None:
    with Index.build(tmp_path / "index", [Document("a", "one", {"k": 1})], Words()) as index:
        index.passages._changes.execute("update document set passages = ?", [said])
        index.passages._changes.commit()
        with pytest.raises(RagError, match="which passages a document has is damaged"):
            index.search("one", where={"k": 2})
