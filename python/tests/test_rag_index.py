"""An index finds what looking at all finds, after whatever changed it, and embeds little again."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.words import Words
from scotfree.rag import Answer, Document, Index, RagError, updating
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.passages import Passages
from scotfree.rag.pending import Pending

TOPICS = 12
# At which hardly any bound is wrong.
SAFE = 5.0


def documents(count: int = 240, seed: int = 1) -> list[Document]:
    """Texts of few topics: words of their topic, and others."""
    chance = np.random.default_rng(seed)
    texts = []
    for place in range(count):
        topic = place % TOPICS
        words = [f"topic{topic}word{chance.integers(0, 12)}" for _ in range(14)]
        words += [f"word{chance.integers(0, 300)}" for _ in range(8)]
        texts.append(Document(f"doc{place}", " ".join(words), {"topic": topic}))
    return texts


QUESTIONS = [
    f"topic{topic}word{word} topic{topic}word{word + 1} word{topic}" for topic in range(6) for word in (0, 5)
]


@pytest.fixture
def embedder() -> Words:
    return Words()


@pytest.fixture
def index(tmp_path: Path, embedder: Words) -> Iterator[Index]:
    with Index.build(tmp_path / "index", documents(), embedder, keep="codes") as built:
        embedder.asked.clear()
        yield built


def flat(texts: list[Document], question: str, count: int = 10) -> list[str]:
    """By looking at all."""
    embedder = Words()
    vectors = embedder.embed([document.text for document in texts])
    similar = vectors @ embedder.embed([question])[0]
    return [texts[place].name for place in np.argsort(-similar, kind="stable")[:count]]


def found(index: Index, question: str, count: int = 10) -> list[str]:
    return [hit.document for hit in index.search(question, count, deviations=SAFE).hits]


def test_it_finds_what_looking_at_all_finds_and_embeds_few_again(index: Index, embedder: Words) -> None:
    exact = 0
    for question in QUESTIONS:
        assert found(index, question) == flat(documents(), question)
        answer = index.search(question, 10)
        exact += answer.regenerated + answer.cached
        assert answer.estimated == len(index) == 240
        assert {"embed query", "centroid search and scan", "load", "regenerate", "rerank"} <= set(answer.stages_ns)
    assert 10 <= exact / len(QUESTIONS) < 80
    assert set(embedder.asked) <= {document.text for document in documents()} | set(QUESTIONS)


def test_a_hit_says_where_it_stands(index: Index) -> None:
    hit = index.search(documents()[17].text, 1).hits[0]
    assert (hit.document, hit.text, hit.start) == ("doc17", documents()[17].text, 0)
    assert hit.metadata == {"topic": 5} and hit.similarity == pytest.approx(1)


def test_only_what_changed_is_embedded(index: Index, embedder: Words) -> None:
    texts = documents()
    texts[3] = Document("doc3", "something else entirely", {"topic": 0})
    texts.append(Document("doc240", "a new one"))
    changes = index.update(texts)
    assert (changes.added, changes.changed, changes.same, changes.embedded) == (1, 1, 239, 2)
    assert sorted(embedder.asked) == ["a new one", "something else entirely"]
    assert index.search("something else entirely", 1).hits[0].document == "doc3"
    for question in [*QUESTIONS, "a new one"]:
        assert found(index, question) == flat(texts, question)


def test_of_a_changed_document_only_the_new_passages_are_embedded(tmp_path: Path, embedder: Words) -> None:
    paragraphs = [" ".join(f"{name}{place}" for place in range(30)) for name in "abcd"]
    with Index.build(
        tmp_path / "index", [Document("one", "\n\n".join(paragraphs))], embedder, keep="codes"
    ) as index:
        count = len(index)
        assert count == 4
        embedder.asked.clear()
        changed = [paragraphs[0], " ".join(f"x{place}" for place in range(30)), *paragraphs[2:], paragraphs[0]]
        assert index.update([Document("one", "\n\n".join(changed))]).embedded == 2
        assert embedder.asked == [changed[1], paragraphs[0]], (
            "a text that stands there once more is one more passage"
        )
        hits = index.search(paragraphs[3], 1, deviations=SAFE).hits
        assert hits[0].start == sum(len(paragraph) + 2 for paragraph in changed[:3])
        assert len(index) == 5


def test_what_is_removed_is_not_found_before_and_after_a_snapshot(index: Index, embedder: Words) -> None:
    left = [document for place, document in enumerate(documents()) if place % 3]
    assert index.remove(document.name for document in documents() if document not in left) == 80
    assert index.remove(["doc0", "nobody"]) == 0
    for is_compacted in (False, True):
        for question in QUESTIONS:
            assert found(index, question) == flat(left, question), is_compacted
        assert index.search(QUESTIONS[0]).estimated == 160
        index.compact(is_forced=True)
    assert not set(embedder.asked) - set(QUESTIONS) - {document.text for document in left}


def test_changes_are_there_for_whoever_opens_it_next(tmp_path: Path, index: Index) -> None:
    index.remove(["doc1"])
    index.update([Document("doc240", "a new one")])
    left = [document for document in documents() if document.name != "doc1"] + [Document("doc240", "a new one")]
    for is_compacted in (False, True):
        with Index(tmp_path / "index", Words(), keep="codes") as again:
            assert len(again) == 240 and "doc1" not in again.documents()
            for question in [*QUESTIONS[:3], "a new one"]:
                assert found(again, question) == flat(left, question), is_compacted
        index.compact(is_forced=True)
    assert len(list((tmp_path / "index").glob("codes-*"))) == 1


def test_a_snapshot_is_made_when_enough_has_changed(index: Index, embedder: Words) -> None:
    index.remove(["doc1"])
    assert not index.compact()
    index.remove([f"doc{place}" for place in range(40)])
    assert index.compact() and not index.compact()
    assert not embedder.asked, "codes are copied, not made anew"


def test_churn_embeds_only_what_is_new_and_finds_as_much(index: Index, embedder: Words) -> None:
    texts = documents()
    for turn in range(4):
        new = [Document(f"new{turn}-{document.name}", document.text) for document in documents(30, seed=turn + 2)]
        index.remove(document.name for document in texts[:30])
        assert index.update(new).embedded == 30
        texts = texts[30:] + new
        index.compact()
    assert len(embedder.asked) == 120
    for question in QUESTIONS:
        assert found(index, question) == flat(texts, question)


def is_of(topics: set[int]) -> list[Document]:
    return [document for document in documents() if document.metadata["topic"] in topics]


@pytest.mark.parametrize(("where", "topics"), [({"topic": 3}, {3}), ({"topic": [3, 4, 99]}, {3, 4})])
def test_a_filter_finds_the_nearest_of_those_that_pass(
    index: Index, embedder: Words, where: dict[str, Any], topics: set[int]
) -> None:
    # Some of them in no snapshot yet.
    index.remove(["doc3"])
    index.update([documents()[3]])
    for question in QUESTIONS:
        answer = index.search(question, 10, where=where, deviations=SAFE)
        assert [hit.document for hit in answer.hits] == flat(is_of(topics), question)
        assert answer.estimated == len(is_of(topics)) - 1
    allowed = {document.text for document in is_of(topics)}
    assert set(embedder.asked) - set(QUESTIONS) <= allowed, "what is not to be found is not embedded"
    assert index.search(QUESTIONS[0], where={"topic": 77}).hits == []
    assert index.search(QUESTIONS[0], where={'an "odd" key': "x"}).hits == []


def test_words_find_what_the_embedding_does_not(tmp_path: Path, embedder: Words) -> None:
    long = " ".join(f"other{place}" for place in range(30))
    texts = [Document(f"short{place}", f"something alpha{place}", {"kind": "short"}) for place in range(20)]
    texts.append(Document("rare", f"{long} errno4711", {"kind": "long"}))
    with Index.build(tmp_path / "index", texts, embedder, keep="codes") as index:
        question = "something errno4711?"
        plain, fused = (index.search(question, 5, with_words=has, deviations=SAFE) for has in (False, True))
        assert "rare" not in [hit.document for hit in plain.hits]
        assert "rare" in [hit.document for hit in fused.hits] and "words" in fused.stages_ns
        by_name = {document.name: document.text for document in texts}
        wanted = embedder.embed([by_name[hit.document] for hit in fused.hits]) @ embedder.embed([question])[0]
        assert [hit.similarity for hit in fused.hits] == pytest.approx(wanted.tolist(), abs=1e-6)
        # A question is words, and no language of queries.
        assert (
            index.search('"NEAR(" OR *', 5, with_words=True).hits and index.search("?!", 5, with_words=True).hits
        )
        index.remove(["rare"])
        assert "rare" not in [hit.document for hit in index.search("errno4711", 5, with_words=True).hits]
        index.update([texts[-1]])
        outside = index.search(question, 5, with_words=True, where={"kind": "short"}).hits
        assert {hit.metadata["kind"] for hit in outside} == {"short"}


def test_what_both_orders_have_first_is_first(tmp_path: Path, embedder: Words) -> None:
    """Reciprocal ranks: 1/61 + 1/61 before 1/62 + 1/62 before what only one order has."""
    texts = [Document("both", "alpha beta"), Document("near", "alpha beta gamma"), Document("none", "delta")]
    with Index.build(tmp_path / "index", texts, embedder, keep="codes") as index:
        hits = index.search("alpha beta", 3, with_words=True).hits
        assert [hit.document for hit in hits] == ["both", "near", "none"]


def test_four_bits_are_searched_without_embedding_anything(tmp_path: Path, embedder: Words) -> None:
    with Index.build(tmp_path / "index", documents(), embedder, bits=4, keep="codes") as index:
        embedder.asked.clear()
        found = [{hit.document for hit in index.search(question).hits} for question in QUESTIONS]
        assert embedder.asked == QUESTIONS
    hits = sum(len(one & set(flat(documents(), question))) for one, question in zip(found, QUESTIONS, strict=True))
    assert hits / (10 * len(QUESTIONS)) > 0.9


def test_what_a_search_embedded_is_not_embedded_again(index: Index, embedder: Words, tmp_path: Path) -> None:
    first, again = (index.search(QUESTIONS[0]) for _ in range(2))
    assert (again.regenerated, again.cached) == (0, first.regenerated) and again.hits == first.hits
    assert embedder.asked.count(QUESTIONS[0]) == 2
    with Index(tmp_path / "index", embedder, cache_bytes=0, keep="codes") as other:
        embedder.asked.clear()
        other.search(QUESTIONS[0])
        assert other.search(QUESTIONS[0]).regenerated == first.regenerated


def test_searches_can_be_awaited_side_by_side(index: Index) -> None:
    async def all_of_them() -> list[Answer]:
        return await asyncio.gather(*(index.asearch(question, 10, deviations=SAFE) for question in QUESTIONS))

    answers = asyncio.run(all_of_them())
    for question, answer in zip(QUESTIONS, answers, strict=True):
        assert [hit.document for hit in answer.hits] == flat(documents(), question)


def test_a_process_that_compacts_has_what_another_compacted_meanwhile(tmp_path: Path, index: Index) -> None:
    with Index(tmp_path / "index", Words(), keep="codes") as other:
        other.remove(["doc1"])
        other.update([Document("doc240", "a new one")])
        other.compact(is_forced=True)
    # It has opened the snapshot before that one.
    assert index.compact(is_forced=True)
    left = [document for document in documents() if document.name != "doc1"] + [Document("doc240", "a new one")]
    for question in [*QUESTIONS, "a new one"]:
        assert found(index, question) == flat(left, question)


def test_whoever_opens_it_while_a_snapshot_takes_anothers_place_gets_one(
    tmp_path: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, is_first = Passages.setting, True

    def replaced(store: Passages, name: str) -> bytes | None:
        nonlocal is_first
        found = honest(store, name)
        if name == "snapshot" and is_first:
            is_first = False
            index.compact(is_forced=True)
        return found

    monkeypatch.setattr(Passages, "setting", replaced)
    with Index(tmp_path / "index", Words(), keep="codes") as again:
        assert found(again, QUESTIONS[0]) == flat(documents(), QUESTIONS[0])


def test_an_empty_index_finds_nothing_and_can_be_filled(tmp_path: Path, embedder: Words) -> None:
    with Index.build(tmp_path / "index", [], embedder, keep="codes") as index:
        assert index.search("anything").hits == [] and len(index) == 0
        index.compact(is_forced=True)
        index.update([Document("one", "a text")])
        assert [hit.document for hit in index.search("text", 3).hits] == ["one"]
        assert index.search("text", 0).hits == []
        index.remove(["one"])
        index.compact(is_forced=True)
        assert index.search("anything").hits == []
    with Index(tmp_path / "index", embedder, keep="codes") as again:
        assert again.search("anything").hits == []


def test_another_model_is_refused(tmp_path: Path, index: Index) -> None:
    with pytest.raises(RagError, match=r"another model \(words\).*open it with that one"):
        Index(tmp_path / "index", Words("others"), keep="codes")
    assert index.search("still there").hits


def test_only_one_process_changes_it(tmp_path: Path, index: Index) -> None:
    with Index(tmp_path / "index", Words(), keep="codes") as other, index._changing():
        assert other.search("one may look").hits
        with pytest.raises(RagError, match="another process is changing it"):
            other.update([Document("doc240", "a new one")])


@pytest.mark.parametrize("damage", ["gone", "cut", "flipped", "foreign"])
def test_a_damaged_snapshot_is_refused_with_the_reason(tmp_path: Path, index: Index, damage: str) -> None:
    index.close()
    path = next((tmp_path / "index").glob("codes-*"))
    whole = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(whole[:-7])
    elif damage == "flipped":
        whole[len(whole) // 2] ^= 4
        path.write_bytes(whole)
    else:
        path.write_bytes(b"something else " * 100)
    with pytest.raises(RagError, match=r"open the index.*`scot rag check --mend`"):
        Index(tmp_path / "index", Words(), keep="codes")


def test_a_foreign_file_of_passages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    with sqlite3.connect(tmp_path / "index" / "passages.sqlite") as other:
        other.execute("create table mine (value)")
    with pytest.raises(RagError, match="no file of passages"):
        Index(tmp_path / "index", Words(), keep="codes")
    (tmp_path / "index" / "passages.sqlite").write_bytes(b"no database at all " * 100)
    with pytest.raises(RagError, match="not a database"):
        Index(tmp_path / "index", Words(), keep="codes")
    with pytest.raises(RagError, match="no folder"):
        Index(tmp_path / "index" / "passages.sqlite", Words(), keep="codes")


def test_a_planted_search_that_forgets_what_is_gone_is_found(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.remove(["doc3"])
    monkeypatch.setattr(Passages, "gone", lambda _: set())
    index.update([])
    assert index.search(QUESTIONS[0]).estimated == 240, "without the plant it is 239"


def test_a_passages_number_is_never_given_twice(tmp_path: Path, index: Index) -> None:
    index.update([Document("last", "the last of all")])
    store = Passages(tmp_path / "index" / "passages.sqlite")
    (last,) = store.texts_of("last")["the last of all", "the last of all"]
    index.remove(["last"])
    index.update([Document("last", "the last of all")])
    (again,) = store.texts_of("last")["the last of all", "the last of all"]
    store.close()
    assert again > last, "else a snapshot's row would be of another text"


def test_a_document_knows_its_passages_through_all_changes(tmp_path: Path, index: Index) -> None:
    paragraphs = [f"topic{at} " * 40 for at in range(9)]
    for kept in (range(9), range(0, 9, 2), (8, 3, 0), range(4)):
        index.update([Document("long", "\n\n".join(paragraphs[at] for at in kept))])
        index.update([Document("between", f"word{len(list(kept))}")])
        store = Passages(tmp_path / "index" / "passages.sqlite")
        rows = store._changes.execute(
            "select name, passage.id from passage join document on document.id = document"
        )
        wanted: dict[str, set[int]] = {}
        for name, number in rows:
            wanted.setdefault(name, set()).add(number)
        found = {name: set(chain(*store.texts_of(name).values())) for name in store.documents()}
        order = [text.text for text in store.of_document("long")]
        store.close()
        assert found == wanted and len(found["long"]) >= len(list(kept))
        assert "".join("".join(order).split()) == "".join("".join(paragraphs[at].split()) for at in kept)
    assert index.remove(["long", "nobody"]) == 1
    assert "long" not in index.documents() and index.texts(["long"]) == []


def test_a_whole_document_is_one_passage_as_it_stands(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "  " + "\n\n".join(" ".join(f"{name}{place}" for place in range(90)) for name in "abc")
    with Index.build(
        tmp_path / "index", [Document("one", text), Document("empty", "")], embedder, keep="codes"
    ) as index:
        assert len(index) > 3
        # Where no splitter is installed.
        monkeypatch.setitem(sys.modules, "semantic_text_splitter", None)
        index.update([Document("one", text, is_whole=True), Document("empty", "", is_whole=True)])
        assert [(found.text, found.start) for found in index.texts(["one", "empty"])] == [(text, 0), ("", 0)]
        assert index.search("b7", 1).hits[0].text == text
    with (
        Index(tmp_path / "other", embedder, keep="codes") as index,
        pytest.raises(RagError, match=r"semantic_text_splitter.*scotfree\[rag\]"),
    ):
        index.update([Document("one", text)])


def test_of_a_name_twice_the_last_counts(index: Index, embedder: Words) -> None:
    before = documents()[3]
    changes = index.update([Document("doc3", "something else"), before, before, Document("new", "x y"), before])
    assert (changes.added, changes.changed, changes.same) == (1, 2, 2)
    assert [text.text for text in index.texts(["doc3"])] == [before.text]
    index.update([before, Document("doc3", "something else")])
    assert [text.text for text in index.texts(["doc3"])] == ["something else"]
    assert len(index) == 241


def test_texts_of_many_documents_are_embedded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches: list[int] = []

    class Counting(Words):
        def embed(self, texts: Sequence[str]) -> Vectors:
            batches.append(len(texts))
            return super().embed(texts)

    monkeypatch.setattr(updating, "BATCH_PASSAGES", 100)
    with Index(tmp_path / "index", Counting(), keep="codes") as index:
        assert index.update(documents()).embedded == 240
        assert batches == [100, 100, 40]
        for question in QUESTIONS:
            assert found(index, question) == flat(documents(), question)


def test_what_an_update_wrote_before_it_failed_is_found(
    tmp_path: Path, embedder: Words, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updating, "BATCH_PASSAGES", 1)

    def failing() -> Iterator[Document]:
        yield from [Document("one", "alpha"), Document("two", "beta")]
        raise OSError("no more")

    with Index(tmp_path / "index", embedder, keep="codes") as index:
        with pytest.raises(OSError, match="no more"):
            index.update(failing())
        assert found(index, "alpha") == index.documents() == ["one"]


def test_documents_are_named_by_what_their_metadata_are(index: Index) -> None:
    names = [f"doc{place}" for place in range(3, 240, 12)]
    assert index.documents({"topic": 3}) == sorted(names)
    assert index.documents(lambda name, metadata: metadata["topic"] == 3 and name in names[:2]) == sorted(
        names[:2]
    )
    assert len(index.documents()) == len(index.documents({})) == 240
    assert [text.text for text in index.texts(["doc7", "nobody", "doc5"])] == [
        documents()[7].text,
        documents()[5].text,
    ]


def test_a_function_of_name_and_metadata_is_a_filter(index: Index) -> None:
    for question in QUESTIONS:
        hits = index.search(question, where=lambda name, metadata: metadata["topic"] > 8, deviations=SAFE).hits
        assert [hit.document for hit in hits] == flat(is_of({9, 10, 11}), question)
    assert index.search("x", where=lambda *_: False).hits == []


def test_a_question_may_come_with_its_embedding(index: Index, embedder: Words) -> None:
    (vector,) = embedder.embed([QUESTIONS[2]])
    wanted = index.search(QUESTIONS[2], deviations=SAFE).hits
    embedder.asked.clear()
    answer = index.search("", vector=vector, deviations=SAFE)
    assert answer.hits == wanted and "embed query" not in answer.stages_ns
    assert not {"", QUESTIONS[2]} & set(embedder.asked)
    worded = index.search("word4", 10, vector=vector, with_words=True).hits
    assert any("word4" in hit.text.split() for hit in worded) and worded != wanted


def test_embeddings_of_what_was_found_are_made_again_only_where_none_is_kept(
    index: Index, embedder: Words, tmp_path: Path
) -> None:
    index.update([Document("new", QUESTIONS[0])])
    hits = index.search(QUESTIONS[0]).hits
    assert hits[0].document == "new"
    embedder.asked.clear()
    rows = index.embeddings([*hits, hits[0]])
    assert embedder.asked == []
    assert rows @ rows[0] == pytest.approx([hit.similarity for hit in [*hits, hits[0]]], abs=1e-6)
    with Index(tmp_path / "index", embedder, keep="codes") as other:
        assert np.array_equal(other.embeddings(hits), rows[:-1]) and len(embedder.asked) == 9
        assert other.embeddings([]).shape == (0, embedder.dimensions)


def test_few_changes_can_wait(tmp_path: Path, embedder: Words) -> None:
    with Index(tmp_path / "index", embedder, keep="codes") as index:
        index.update(documents(20))
        assert not index.compact(changes_min=21) and not list((tmp_path / "index").glob("codes-*"))
        assert index.compact(changes_min=20)
        index.remove(["doc1"])
        assert not index.compact(changes_min=1), "few of many, whatever the least is"


def test_threads_that_change_it_wait_for_each_other(index: Index) -> None:
    with ThreadPoolExecutor(8) as threads:
        new = [Document(f"new{place}", f"text {place}") for place in range(40)]
        assert sum(threads.map(lambda one: index.update([one]).added, new)) == 40
        assert sum(threads.map(lambda one: index.remove([one.name]), new[:20])) == 20
    assert len(index) == 260 and {one.name for one in new[20:]} < set(index.documents())


def test_a_search_sees_the_whole_of_a_change_or_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.update([Document("new", QUESTIONS[0])])
    honest = Pending.nearest

    def compacted(*of: Any) -> Any:
        known = honest(*of)
        index.compact(is_forced=True)
        return known

    monkeypatch.setattr(Pending, "nearest", compacted)
    answer = index.search(QUESTIONS[0], 10, deviations=SAFE)
    assert [hit.document for hit in answer.hits] == ["new", *flat(documents(), QUESTIONS[0], 9)]
    assert answer.estimated == 240, "of the snapshot that there was, which has not the new one"


def test_what_is_removed_during_a_search_gives_its_place_to_others(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.update([Document("new", QUESTIONS[0])])
    honest = index._find

    def removed(*of: Any) -> Any:
        found = honest(*of)
        index._passages.remove(["new"])
        return found

    monkeypatch.setattr(index, "_find", removed)
    answer = index.search(QUESTIONS[0], 10, deviations=SAFE)
    assert [hit.document for hit in answer.hits] == flat(documents(), QUESTIONS[0])


def test_embeddings_that_are_settled_take_no_room(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    documents = [Document(str(at), f"topic{at % 9} word{at} word{at % 31}") for at in range(2000)]
    with Index(folder, Words(), keep="codes") as index:
        index.update(documents)
        flat = len(documents) * 4 * Words().dimensions
        assert sum(path.stat().st_size for path in folder.glob("passages.sqlite*")) > flat
        index.compact()
        store = Passages(folder / "passages.sqlite")
        sizes = store.sizes()
        store.close()
        on_disk = sum(path.stat().st_size for path in folder.glob("passages.sqlite*"))
    assert sizes.free_bytes == 0
    assert on_disk < flat / 2


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda rows: np.vstack([rows, rows[:1]]), "of shape"),
        (lambda rows: rows[:-1], "of shape"),
        (lambda rows: rows[:, :-1], "of shape"),
        (lambda rows: rows * np.nan, "not the length one"),
        (lambda rows: rows * 0, "not the length one"),
        (lambda rows: [["a"]] * len(rows), "no rows of numbers"),
    ],
)
def test_what_an_embedder_makes_wrong_is_not_written(
    tmp_path: Path, spoilt: Callable[[Any], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Words()
    with Index(tmp_path / "index", words, keep="codes") as index:
        index.add([Document("first", "one two")])
        made = words.embed
        with monkeypatch.context() as broken:
            broken.setattr(words, "embed", lambda texts: spoilt(made(texts)))
            with pytest.raises(RagError, match=said):
                index.add([Document("second", "three four"), Document("third", "five")])
        assert index.documents() == ["first"]
        index.compact(is_forced=True)
        # Of other numbers and in a list they are the same.
        monkeypatch.setattr(words, "embed", lambda texts: made(texts).astype(float).tolist())
        index.add([Document("second", "three four")])
        assert index.search("three four", 1).hits[0].similarity == pytest.approx(1, abs=1e-5)


def test_an_embedding_of_a_question_is_checked(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", [Document("a", "one")], Words(), keep="codes") as index:
        wrong: list[Any] = [np.zeros(3), np.full(Words().dimensions, np.nan), np.zeros((1, 2)), "text"]
        for vector in wrong:
            with pytest.raises(RagError, match="a search with an embedding"):
                index.search("one", vector=vector)


def test_a_document_that_could_not_be_written_is_refused_before_anything_is(tmp_path: Path) -> None:
    with Index(tmp_path / "index", Words(), keep="codes") as index:
        for wrong in (
            Document("half \ud800", "text"),
            Document("a", "half \ud800"),
            Document("a", "text", {"score": float("nan")}),
            Document("a", "text", {"score": {1}}),
            Document(None, "text"),  # type: ignore[arg-type]
        ):
            with pytest.raises(RagError, match="put in the document"):
                index.add([Document("good", "text"), wrong])
        index.add([Document("good", "text", {"year": 1999})])
        assert index.documents({"year": 1999}) == ["good"]


def test_a_change_is_seen_by_nobody_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.build(tmp_path / "index", [Document("a", "alpha text")], Words(), keep="codes") as index:
        seen: list[list[str]] = []
        add = Passages._add

        def breaks(self: Passages, *what: Any) -> int:
            add(self, *what)
            seen.append([hit.document for hit in index.search("gamma text", 9, with_words=True).hits])
            seen.append([text.text for text in index.texts(["a", "new"])])
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as broken, pytest.raises(OSError):
            broken.setattr(Passages, "_add", breaks)
            index.add([Document("new", "gamma text")])
        with monkeypatch.context() as broken, pytest.raises(OSError):
            broken.setattr(Passages, "_add", breaks)
            index.add([Document("a", "beta text")])
        assert seen == [["a"], ["alpha text"], ["a"], ["alpha text"]]
        index.add([Document("new", "delta wing")])
        assert index.search("delta wing", 1).hits[0].similarity == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "damage",
    [
        "update pending set embedding = 5",
        "update setting set value = 'text' where name = 'snapshot'",
        "update setting set value = x'ff' where name = 'snapshot'",
        "update setting set value = x'2e2e2f78' where name = 'snapshot'",
        "update setting set value = 'text' where name = 'embedder'",
        "update document set metadata = '{'",
        "update document set passages = '['",
    ],
)
def test_damage_in_the_texts_file_is_told(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "index"
    with Index.build(folder, [Document("a", "one")], Words(), keep="codes") as index:
        index.add([Document("b", "two")])
    with sqlite3.connect(folder / "passages.sqlite") as file:
        file.execute(damage)
    file.close()
    with pytest.raises(RagError, match="is damaged"), Index(folder, Words(), keep="codes") as index:
        index.texts(["a"])


def test_what_is_no_name_or_filter_or_question_is_refused(tmp_path: Path) -> None:
    with Index.build(
        tmp_path / "index", [Document("a", "one", {"year": 7, 'a"b': "c"})], Words(), keep="codes"
    ) as index:
        bad: list[Any] = [{1: 1}, {"year": None}, {"year": {"of": 1}}, {"year": float("nan")}, {"year": "\ud800"}]
        for wrong in bad:
            with pytest.raises(RagError, match="look only in documents with"):
                index.search("one", where=wrong)
        with pytest.raises(RagError, match="say keys and values"):
            index.search("one", where="year=7")  # type: ignore[arg-type]
        for where in ({"year": 7.0}, {"year": [2**70, 7]}, {"year": [*range(40_000)]}, {'a"b': "c"}):
            assert index.search("one", where=where).hits
        for question in (5, "\ud800"):
            with pytest.raises(RagError, match="it is no text"):
                index.search(question)  # type: ignore[arg-type]
        for many in (index.remove, index.texts):
            with pytest.raises(RagError, match=r"say a list of them: \['a'\]"):
                many("a")
        for document in ("text", Document("b", "two", [1])):  # type: ignore[arg-type]
            with pytest.raises(RagError, match="a Document of name, text and a dict"):
                index.add([document])  # type: ignore[list-item]
        assert not index.search("one", probes=-1).hits and index.search("one", probes=2**70).hits
        assert index.documents() == ["a"]


def test_an_index_that_was_moved_is_not_changed_by_who_has_it_open(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    with Index.build(folder, [Document("old", "one")], Words(), keep="codes") as index:
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(RagError, match="moved or another put in its place"):
            index.add([Document("new", "two")])
        Index.build(folder, [Document("other", "three")], Words(), keep="codes").close()
        for change in (lambda: index.add([Document("new", "two")]), lambda: index.compact(is_forced=True)):
            with pytest.raises(RagError, match="moved or another put in its place"):
                change()
    with Index(folder, Words(), keep="codes") as index:
        assert index.search("three", 1).hits[0].document == "other"


def test_a_folder_is_the_same_wherever_its_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with Index.build(Path("index"), [Document("a", "one")], Words(), keep="codes") as index:
        monkeypatch.chdir(tmp_path / "elsewhere")
        index.add([Document("b", "two")])
        index.compact(is_forced=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_codes_without_their_texts_are_no_new_index(tmp_path: Path) -> None:
    Index.build(tmp_path / "index", [Document("a", "one")], Words(), keep="codes").close()
    (tmp_path / "index/passages.sqlite").write_bytes(b"")
    with pytest.raises(RagError, match="it is empty, though codes lie beside it"):
        Index(tmp_path / "index", Words(), keep="codes")


def test_bits_are_some(tmp_path: Path) -> None:
    for bits in (0, -1, 6.5, float("nan")):
        with pytest.raises(RagError, match="bits a dimension"):
            Index(tmp_path / "index", Words(), bits=bits, keep="codes")
    assert not (tmp_path / "index").exists()
