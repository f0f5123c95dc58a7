"""Filters: SQLite and Python say the same of them, and what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.words import Words
from scotfree.rag import Document, Index, RagError, filters
from scotfree.rag.filters import DEPTH_MAX, TERMS_MAX

DOCUMENTS: dict[str, dict[str, Any]] = {
    "old": {"year": 1999, "kind": "note", "tags": ["a", "b"], "day": "1999-12-31"},
    "new": {"year": 2024, "kind": "note", "tags": ["b", "c"], "day": "2024-05-01"},
    "text": {"year": "2024", "kind": "page", "is_read": True, "rates": [0.5, 3.25]},
    "null": {"year": None, "tags": [], "deep": {"year": 2024}, "lists": [[1, 2], 3]},
    "bare": {},
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Any:
    documents = [Document(name, name, metadata) for name, metadata in DOCUMENTS.items()]
    with Index.build(tmp_path_factory.mktemp("filters") / "index", documents, Words()) as built:
        yield built


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({}, "old new text null bare"),
        ({"year": 2024}, "new"),
        ({"year": {"$eq": 2024}}, "new"),
        ({"year": 2024.0}, "new"),
        ({"year": [1999, "2024"]}, "old text"),
        ({"year": {"$in": [1999, "2024"]}}, "old text"),
        ({"year": {"$in": []}}, ""),
        # Also where there is no such key, or nothing in it.
        ({"year": {"$ne": 2024}}, "old text null bare"),
        ({"year": {"$nin": [2024, "2024"]}}, "old null bare"),
        ({"year": {"$nin": []}}, "old new text null bare"),
        # Numbers with numbers, texts with texts.
        ({"year": {"$gt": 1999}}, "new"),
        ({"year": {"$gte": 1999}}, "old new"),
        ({"year": {"$gte": "1999"}}, "text"),
        ({"year": {"$gte": 1999, "$lt": 2024}}, "old"),
        ({"day": {"$gte": "2024-01-01", "$lte": "2024-12-31"}}, "new"),
        # One of the values of a list.
        ({"tags": "b"}, "old new"),
        ({"tags": ["a", "c"]}, "old new"),
        ({"tags": {"$ne": "a"}}, "new text null bare"),
        ({"tags": {"$nin": ["a", "c"]}}, "text null bare"),
        ({"tags": {"$gt": "b"}}, "new"),
        ({"rates": {"$gt": 3, "$lt": 1}}, "text"),
        ({"lists": 3}, "null"),
        ({"lists": 1}, ""),
        ({"is_read": True}, "text"),
        ({"is_read": 1}, "text"),
        ({"is_read": {"$lt": 2}}, "text"),
        ({"year": {"$exists": True}}, "old new text null"),
        ({"year": {"$exists": False}}, "bare"),
        ({"deep": {"$exists": True}}, "null"),
        ({"$or": [{"year": 1999}, {"kind": "page"}]}, "old text"),
        ({"kind": "note", "$or": [{"year": 1999}, {"kind": "page"}]}, "old"),
        ({"$and": [{"kind": "note"}, {"tags": "c"}]}, "new"),
        ({"$and": [{}]}, "old new text null bare"),
        ({"$not": {"kind": "note"}}, "text null bare"),
        ({"$not": {"$or": [{"kind": "note"}, {"kind": "page"}]}}, "null bare"),
        ({"year": {"$not": {"$gt": 1999}}}, "old text null bare"),
        ({"$not": {"$not": {"kind": "note"}}}, "old new"),
    ],
    ids=str,
)
def test_what_a_filter_lets_pass(index: Index, where: dict[str, Any], names: str) -> None:
    assert index.documents(where) == sorted(names.split())
    assert sorted({hit.document for hit in index.search("old", where=where).hits}) == sorted(names.split())
    term = filters.read(where)
    assert [name for name, metadata in DOCUMENTS.items() if filters.passes(term, metadata)] == names.split()


def nested(depth: int) -> dict[str, Any]:
    where: dict[str, Any] = {"k": 1}
    for _ in range(depth - 1):
        where = {"$not": where}
    return where


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"year": {"$near": 3}}, r"'\$near': there is no such operator; say \$eq, \$ne"),
        ({"year": {"near": 3}}, "'near': there is no such operator"),
        ({"$nor": [{"year": 3}]}, r"'\$nor': there is no such operator; say \$and, \$or, \$not"),
        ({"year": {}}, "say keys and values"),
        ({"year": None}, "say keys and values"),
        ({"year": {"$gt": None}}, "say keys and values"),
        ({"year": {"$gt": [1]}}, "say keys and values"),
        ({"year": {"$eq": [1]}}, "say keys and values"),
        ({"year": {"$in": "text"}}, "say keys and values"),
        ({"year": {"$in": 3}}, "say keys and values"),
        ({"year": {"$in": [[1]]}}, "say keys and values"),
        ({"year": {"$not": 3}}, "say keys and values"),
        ({"year": {"$not": {}}}, "say keys and values"),
        ({"year": {"$gt": float("inf")}}, "say keys and values"),
        ({"year": 10**5000}, "a number of thousands of digits"),
        ({"half \ud800": 3}, "say keys and values"),
        ({"year": {"$exists": 1}}, "say true or false"),
        ({"$or": []}, "say a list of filters"),
        ({"$and": {"year": 3}}, "say a list of filters"),
        ({"$or": [3]}, "say keys and values"),
        ({"$not": 3}, "say keys and values"),
        (nested(DEPTH_MAX + 1), f"nest at most {DEPTH_MAX}"),
        (nested(100_000), f"nest at most {DEPTH_MAX}"),
        ({"$or": [{"k": 1}] * (TERMS_MAX + 1)}, f"{TERMS_MAX + 1} conditions; say at most {TERMS_MAX}"),
        ({"k": {"$in": [*range(9), nested(9_000)]}}, "say keys and values"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
def test_what_is_no_filter_is_refused(index: Index, where: Any, why: str) -> None:
    for asked in (index.documents, lambda where: index.search("x", where=where)):
        with pytest.raises(RagError, match=f"look only in documents with .*{why}") as told:
            asked(where)
        assert len(str(told.value)) < 400


def test_the_largest_filters_are_answered(index: Index) -> None:
    assert index.documents(nested(DEPTH_MAX)) == sorted(DOCUMENTS)
    widest = {"$or": [{"tags": {"$gt": "b"}}] * TERMS_MAX}
    assert index.documents(widest) == ["new"]
    deep: dict[str, Any] = {"$or": [{"year": {"$nin": [1]}}] * TERMS_MAX}
    for _ in range(DEPTH_MAX - 2):
        deep = {"$and": [deep]}
    assert index.documents(deep) == sorted(DOCUMENTS)


# Few of each, so that filters meet what documents have; some that SQLite reads otherwise, or cuts.
KEYS = st.sampled_from(["k", "l", "with space", 'a"b', "k\0", "é\n", "$", "a.b"])
TEXTS = st.sampled_from(["", "a", "a\0", "a\0b", "B", "é", "𝄞", "\uffff", "1", "2024-05-01", "%", "'"])
NUMBERS = st.one_of(
    st.sampled_from(
        [0, 1, -1, 2, 0.5, 2.0, -0.0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, -(2**63), 2**200]
    ),
    st.sampled_from([0.1 + 0.2, 0.3, 1e22, 1e23, 5e-324, 1.7976931348623157e308, float(2**63), float(2**53)]),
    st.floats(allow_nan=False, allow_infinity=False),
)
VALUES = st.one_of(TEXTS, NUMBERS, st.booleans())
METADATA = st.dictionaries(
    KEYS,
    st.one_of(VALUES, st.none(), st.lists(st.one_of(VALUES, st.none(), st.lists(VALUES, max_size=2)), max_size=3))
    | st.dictionaries(KEYS, VALUES, max_size=2),
    max_size=4,
)
OPERATIONS = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"]), VALUES),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(VALUES, max_size=3)),
    st.tuples(st.just("$exists"), st.booleans()),
).map(lambda pair: {pair[0]: pair[1]})
ASKED = st.one_of(VALUES, st.lists(VALUES, max_size=3), OPERATIONS, OPERATIONS.map(lambda of: {"$not": of}))
LEAVES = st.dictionaries(KEYS.filter(lambda key: key != "$"), ASKED, max_size=2)
WHERE = st.recursive(
    LEAVES,
    lambda part: st.one_of(
        st.tuples(st.sampled_from(["$and", "$or"]), st.lists(part, min_size=1, max_size=3)),
        st.tuples(st.just("$not"), part),
    ).map(lambda pair: {pair[0]: pair[1]}),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Index(tmp_path_factory.mktemp("drawn") / "index", Words()) as built:
        yield built


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(where=WHERE, several=st.lists(METADATA, min_size=1, max_size=6))
def test_sqlite_and_python_say_the_same(drawn: Index, where: dict[str, Any], several: list[Any]) -> None:
    drawn.remove(drawn.documents())
    # Of no passages: nothing is embedded.
    drawn.add([Document(str(place), "", metadata) for place, metadata in enumerate(several)])
    term = filters.read(where)
    wanted = [str(place) for place, metadata in enumerate(several) if filters.passes(term, metadata)]
    assert drawn.documents(where) == wanted


def test_a_function_is_still_asked(index: Index) -> None:
    assert index.documents(lambda name, metadata: name == "old" or "deep" in metadata) == ["null", "old"]


def test_a_text_that_sqlite_cuts_is_found_whole(tmp_path: Path) -> None:
    documents = [Document("cut", "one", {"k": "a\0b"}), Document("plain", "one", {"k": "a"})]
    with Index.build(tmp_path / "index", documents, Words()) as index:
        assert index.documents({"k": "a"}) == ["plain"]
        assert index.documents({"k": {"$ne": "a"}}) == ["cut"]
        assert index.documents({"k": "a\0b"}) == ["cut"]
        assert {hit.document for hit in index.search("one", where={"k": {"$ne": "a"}}).hits} == {"cut"}


def test_numbers_beyond_63_bits_are_told_apart(tmp_path: Path) -> None:
    documents = [Document("less", "one", {"n": 2**63}), Document("more", "one", {"n": 2**63 + 1})]
    with Index.build(tmp_path / "index", documents, Words()) as index:
        assert index.documents({"n": 2**63}) == ["less"]
        assert index.documents({"n": {"$gt": 2**63}}) == ["more"]
        assert index.documents({"n": {"$gt": 2**63 - 1}}) == ["less", "more"]
