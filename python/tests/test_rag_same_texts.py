"""The same text is embedded once and shown once; a file that has another name now is not embedded again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from bench.words import Words
from scotfree.rag import Document, Index, cli
from scotfree.rag.known_texts import KnownTexts
from scotfree.rag.outline import Outline
from scotfree.rag.passages import Passages

LICENCE = "use and copy it as you like without any warranty"


def documents(names: Iterable[str], text: str = LICENCE) -> list[Document]:
    return [Document(name, text, {"kind": "licence"}) for name in names]


def shown(index: Index, question: str, count: int, **how: object) -> list[tuple[str, list[str]]]:
    answer = index.search(question, count, deviations=5.0, is_distinct=True, **how)  # type: ignore[arg-type]
    return [(hit.document, [place.document for place in hit.copies]) for hit in answer.hits]


def test_a_text_is_embedded_once_however_often_it_stands_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the same text comes again in a group of its own.
    monkeypatch.setattr("scotfree.rag.updating.BATCH_PASSAGES", 2)
    embedder = Words()
    many = [*documents("abcde"), Document("f", "another text"), *documents("ghi")]
    with Index(tmp_path / "index", embedder) as index:
        index.update(many)
        assert sorted(embedder.asked) == ["another text", LICENCE]
        index.compact()
        assert len(index) == 9
        vectors = index.embeddings(index.search(LICENCE, 9).hits)
        assert sum(vectors @ embedder.embed([LICENCE])[0] > 0.999) == 8


def test_what_an_update_that_was_killed_embedded_is_known_to_the_next(tmp_path: Path) -> None:
    embedder = Words()
    with Index(tmp_path / "index", embedder) as index:
        index.update(documents("a"))
    embedder.asked.clear()
    with Index(tmp_path / "index", embedder) as index:
        assert index.update([*documents("ab"), Document("c", "another")]).embedded == 1
        assert embedder.asked == ["another"]
        index.compact()
        # Its row is as good.
        assert index.update(documents("d")).embedded == 0
        index.remove(["a", "b", "d"])
        assert index.update(documents("e")).embedded == 1, "of what is gone there is none"


def test_of_codes_alone_a_copy_is_embedded_again(tmp_path: Path) -> None:
    with Index.build(tmp_path / "index", documents("a"), Words(), keep="codes") as index:
        assert index.update(documents("d")).embedded == 1


@pytest.mark.parametrize("title", ["", "Licences"])
def test_a_copy_takes_the_row_of_the_first_if_all_that_is_embedded_is_the_same(tmp_path: Path, title: str) -> None:
    embedder, outline = Words(tokens_max=300), Outline(title=title)
    others = [Document(f"other{place}", f"{LICENCE} part{place}") for place in range(20)]
    first = Document("first", LICENCE, outline=outline)
    with Index.build(tmp_path / "index", [first, *others], embedder) as index:
        embedder.asked.clear()
        copies = [Document("copy", LICENCE, outline=outline), Document("new", "words that nobody wrote")]
        assert index.update(copies).embedded == 1 and embedder.asked == ["words that nobody wrote"]
        assert index.update([Document("titled", LICENCE, outline=Outline(title="Other"))]).embedded == 1
        for is_compacted in (False, True):
            if is_compacted:
                index.compact(is_forced=True)
            hits = index.search(f"{title}: {LICENCE}" if title else LICENCE, 3).hits
            assert {"first", "copy"} == {hit.document for hit in hits[:2]}
            assert hits[0].similarity == pytest.approx(hits[1].similarity, abs=0.01)
        assert index.damages() == []


def test_a_damaged_row_is_not_taken_for_a_copys(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    Index.build(folder, documents("a"), Words()).close()
    (rows,) = folder.glob("exact-*.scot")
    data = bytearray(rows.read_bytes())
    data[-3] ^= 0xFF
    rows.write_bytes(data)
    with Index(folder, Words()) as index:
        assert index.update(documents("d")).embedded == 1


def test_a_planted_memory_of_another_text_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scotfree.rag.known_texts._digest", lambda text: b"the same")
    monkeypatch.setattr("scotfree.rag.updating.BATCH_PASSAGES", 1)
    with Index(tmp_path / "index", Words()) as index:
        index.update([*documents("a"), Document("b", "another")])
        assert index.search("another", 1).hits[0].similarity < 0.9


def test_texts_are_known_in_the_order_in_which_they_are_asked_for(tmp_path: Path) -> None:
    store, embedder = Passages(tmp_path / "passages.sqlite"), Words()
    texts = ["b", "a", "b", "c", "a"]
    vectors, count = KnownTexts(store, embedder).embedded(texts)
    assert [list(vector) for vector in vectors] == [list(vector) for vector in Words().embed(texts)]
    assert count == 3 and embedder.asked == ["b", "a", "c"]
    assert KnownTexts(store, embedder).embedded([])[1] == 0
    store.close()


@pytest.mark.parametrize("with_words", [False, True])
def test_ten_hits_are_ten_texts(tmp_path: Path, with_words: bool) -> None:
    copies = documents(f"copy{place:02}" for place in range(40))
    others = [Document(f"other{place}", f"{LICENCE} but for part number{place}") for place in range(5)]
    longer = [Document(name, f"{LICENCE} and more", {"kind": "licence"}) for name in ("x", "y")]
    with Index.build(tmp_path / "index", [*copies, *others, *longer], Words()) as index:
        found = shown(index, LICENCE, 7, with_words=with_words)
        assert len(found) == 7 and len({name[:4] for name, _ in found[:2]}) == 2
        names = {name for name, _ in found}
        assert len(names & {document.name for document in copies}) == 1
        assert {f"other{place}" for place in range(5)} <= names
        assert len(dict(found)[next(name for name in names if name.startswith("copy"))]) == 39
        # What a filter leaves out is no other place of it either.
        index.update([Document("copy07", LICENCE, {"kind": "none"})])
        ((first, places), *_) = shown(index, LICENCE, 3, where={"kind": "licence"}, with_words=with_words)
        assert first.startswith("copy") and len(places) == 38 and "copy07" not in places
        # Without being asked nobody gets fewer.
        assert len({hit.text for hit in index.search(LICENCE, 7, deviations=5.0).hits}) == 1


@pytest.mark.parametrize(
    "text", ["- - -", '"quoted" * (AND) OR', "no\0thing more", "x" * 500, "東京 " * 90, "it's"]
)
def test_whatever_the_text_is_its_copies_are_found(tmp_path: Path, text: str) -> None:
    with Index.build(tmp_path / "index", documents("abc", text), Words(tokens_max=200)) as index:
        ((_, copies), *_) = shown(index, text, 3)
        assert len(copies) == 2
    store = Passages(tmp_path / "index/passages.sqlite")
    assert len(store.with_text(text.strip())) == (0 if text == "- - -" else 3)
    store.close()


def test_a_document_whose_name_is_another_keeps_its_passages(tmp_path: Path) -> None:
    embedder = Words()
    named = [Document(name, f"text of {name}") for name in "abc"]
    with Index.build(tmp_path / "index", named, embedder) as index:
        numbers = {text.text: text.number for name in "abc" for text in index.texts([name])}
        embedder.asked.clear()
        told: list[str] = []
        again = [Document("new", "text of a"), Document("copy", "text of b"), Document("a", "and a new one")]
        changes = index.update(
            again, progress=lambda document: told.append(document.name), is_gone=lambda name: name == "a"
        )
        assert (changes.moved, changes.added, changes.changed, changes.embedded) == (1, 2, 0, 1)
        assert embedder.asked == ["and a new one"] and sorted(told) == ["a", "copy", "new"]
        assert index.documents() == ["a", "b", "c", "copy", "new"]
        assert {text.text: text.number for text in index.texts(["new"])} == {"text of a": numbers["text of a"]}
        assert index.search("text of a", 1).hits[0].document == "new"
        assert [text.text for text in index.texts(["a"])] == ["and a new one"]


def test_of_two_that_are_the_same_each_is_found_under_its_new_name(tmp_path: Path) -> None:
    embedder = Words()
    with Index.build(tmp_path / "index", documents(["old/a", "old/b"]), embedder) as index:
        embedder.asked.clear()
        changes = index.update(
            documents(["new/a", "new/b", "new/c"]), is_gone=lambda name: name.startswith("old/")
        )
        assert (changes.moved, changes.added) == (2, 1)
        assert index.documents() == ["new/a", "new/b", "new/c"] and embedder.asked == []


def test_many_are_given_their_names_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scotfree.rag.updating._MOVED_MAX", 2)
    written: list[int] = []
    put = Passages.put

    def counted(self: Passages, changes: Sequence, moved: dict[str, str]) -> dict[str, int]:  # type: ignore[type-arg]
        written.append(len(moved))
        return put(self, changes, moved)

    with Index.build(tmp_path / "index", [Document(f"a{at}", f"text {at}") for at in range(5)], Words()) as index:
        monkeypatch.setattr(Passages, "put", counted)
        again = [Document(f"b{at}", f"text {at}") for at in range(5)]
        assert index.update(again, is_gone=lambda name: name.startswith("a")).moved == 5
        assert written == [2, 2, 1] and index.documents() == [f"b{at}" for at in range(5)]


def test_a_file_that_was_moved_is_not_embedded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    embedder = Words()
    monkeypatch.setattr("scotfree.rag.commands.opening.by_name", lambda *_, **__: embedder)
    folder, index = tmp_path / "docs", ["--index", str(tmp_path / "index")]
    (folder / "old").mkdir(parents=True)
    (folder / "old/a.txt").write_text("a violin has strings")
    (folder / "b.txt").write_text("drums are struck")
    assert cli.main(["index", str(folder), *index]) == 0
    (folder / "old").rename(folder / "new")
    (folder / "c.txt").write_text("pipes are blown")
    embedder.asked.clear()
    capsys.readouterr()
    assert cli.main(["index", str(folder), *index]) == 0
    told = capsys.readouterr().err
    assert "1 file added, 0 changed, 1 renamed, 0 removed, 1 as it was; 1 passage embedded, 3 in all" in told
    assert "a violin has strings" not in embedder.asked
    # Of a folder that is not looked at nothing is taken.
    (folder / "new/a.txt").rename(tmp_path / "a.txt")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.txt").rename(tmp_path / "elsewhere/a.txt")
    assert cli.main(["index", str(tmp_path / "elsewhere"), *index]) == 0
    assert "1 file added" in capsys.readouterr().err


def test_the_same_text_without_words_is_shown_once(tmp_path: Path) -> None:
    texts = [Document(f"rule{place}", "---\n***\n---") for place in range(40)]
    with Index.build(tmp_path / "index", [*texts, Document("word", "word1 word2")], Words()) as index:
        hits = index.search("word1", 10, is_distinct=True).hits
        assert sorted({hit.text for hit in hits}) == sorted(hit.text for hit in hits) and len(hits) == 2
        (rule,) = (hit for hit in hits if hit.document != "word")
        assert len(rule.copies) == 39


def test_a_title_and_a_text_that_trade_words_are_another_passage(tmp_path: Path) -> None:
    def titled(title: str, text: str) -> Document:
        return Document("one", text, outline=Outline(title=title))

    with Index(tmp_path / "index", Words()) as index:
        index.update([titled("A", "B: word1 word2")])
        index.update([titled("A: B", "word1 word2")])
        (text,) = index.texts(["one"])
        assert text.text == "word1 word2"


def test_the_same_text_under_other_headings_is_another_hit(tmp_path: Path) -> None:
    def below(name: str, title: str) -> Document:
        return Document(name, LICENCE, outline=Outline(title=title))

    notes = [below("a", "Red"), below("b", "Blue"), below("copy", "Red"), below("trade", f"Red: {LICENCE[:3]}")]
    traded = Document("x", f"{LICENCE[:3]}: {LICENCE}", outline=Outline(title="Red"))
    plain = documents(("dup1.txt", "dup2.txt"))
    with Index.build(tmp_path / "index", [*notes, traded, *plain], Words(tokens_max=300)) as index:
        for with_words in (False, True):
            found = shown(index, LICENCE, 10, with_words=with_words)
            assert sorted((name, copies) for name, copies in found) == [
                ("a", ["copy"]),
                ("b", []),
                ("dup1.txt", ["dup2.txt"]),
                ("trade", []),
                ("x", []),
            ]
