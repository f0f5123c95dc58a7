"""A hit says where it stands, as its readers count; what stands above a text is embedded with it."""

from __future__ import annotations

import json
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest
from packed import docx, epub, notebook, pdf

from bench.words import Words
from scotfree.rag import Document, Index, RagError, cli
from scotfree.rag.documents import read
from scotfree.rag.formats import plain
from scotfree.rag.outline import Heading, Outline
from scotfree.rag.outline import read as read_outline
from scotfree.rag.splitting import Cut, Splitter

WORDS = " ".join(f"word{place}" for place in range(12))
MARKDOWN = f"""---
title: "Manual"
---
# Logs

{WORDS} intro

## Rotation ##

{WORDS} rotated

```sh
# no heading
```

Keep
----

{WORDS} kept
"""


def put(folder: Path, name: str, data: bytes) -> Document:
    (folder / name).write_bytes(data)
    return read(folder / name)


def places(index: Index, question: str) -> tuple[str, str]:
    hit = index.search(question, 1, deviations=5.0).hits[0]
    return hit.location, hit.section


def test_a_hit_says_its_line_its_page_its_cell_or_its_chapter(tmp_path: Path) -> None:
    documents = [
        put(tmp_path, "a.txt", "\n".join(f"line{place} {WORDS}" for place in range(1, 31)).encode()),
        put(tmp_path, "a.md", MARKDOWN.encode()),
        put(tmp_path, "a.pdf", pdf("first page", "second leaf", "third sheet")),
        put(tmp_path, "a.ipynb", notebook([("markdown", "# Data"), ("code", ""), ("code", "load(table)")])),
        put(tmp_path, "a.epub", epub({"a.xhtml": "<h1>One</h1>begin", "b.xhtml": "<h1>Two</h1><p>finish</p>"})),
        put(tmp_path, "a.docx", docx([("Heading1", "Word"), ("Heading2", "Inside"), ("Normal", "paragraph")])),
        put(tmp_path, "a.html", b"<title>Page</title><h1>Top</h1><p>markup</p>"),
        Document("given", "something given"),
    ]
    with Index.build(tmp_path / "index", documents, Words(tokens_max=16)) as index:
        assert places(index, f"line7 {WORDS}") == ("line 7", "")
        assert places(index, "word7 word8 word9 word10 word11 kept") == ("line 19", "Logs > Keep")
        assert places(index, "# Data load(table)") == ("cell 1", "Data")
        assert places(index, "finish") == ("chapter 2", "Two")
        assert places(index, "paragraph Inside") == ("", "Word")
        assert places(index, "markup Top") == ("", "Top")
        assert places(index, "something given") == ("", "")
        # A passage goes on from page to page: it is where it begins.
        assert places(index, "first page second leaf third sheet") == ("page 1", "")
    pages = put(tmp_path, "b.pdf", pdf(f"{WORDS} one", f"{WORDS} two", f"{WORDS} three"))
    with Index.build(tmp_path / "pages", [pages], Words(tokens_max=16)) as index:
        assert places(index, f"{WORDS} two") == ("page 2", "")


def test_headings_are_those_of_commonmark() -> None:
    outline = plain.markdown(MARKDOWN).outline
    assert outline.title == "Manual"
    assert [(one.level, one.text) for one in outline.headings] == [(1, "Logs"), (2, "Rotation"), (2, "Keep")]
    assert all(MARKDOWN[one.start :].lstrip("# ").startswith(one.text) for one in outline.headings)
    assert [one.text for one in plain.headings("# C#\n#none\n####### none\n # Two #  \n#\n    # code\n")] == [
        "C#",
        "Two",
        "",
    ]


def test_above_a_passage_stand_title_and_headings_that_are_not_in_it() -> None:
    outline = Outline(
        title="Manual", headings=(Heading(10, 1, "Logs"), Heading(50, 2, "Keep"), Heading(90, 2, "End"))
    )
    assert [outline.above(start, 100) for start in (0, 10, 20, 50, 60, 90, 95)] == [
        "Manual",
        "Manual",
        "Manual > Logs",
        "Manual > Logs",
        "Manual > Logs > Keep",
        "Manual > Logs",
        "Manual > Logs > End",
    ]
    assert outline.section(50) == "Logs > Keep" and outline.section(5) == ""
    # The nearest say most.
    assert outline.above(60, 12) == "Logs > Keep" and outline.above(60, 5) == "Keep" and not outline.above(60, 2)
    many = Outline("page", (), "Größe", tuple(Heading(at * 10, 1 + at % 3, f"Part {at}") for at in range(900)))
    for one in (outline, many, Outline("line"), Outline()):
        assert read_outline(one.written()) == one
    assert Outline().written() == "" and len(many.written()) < 9_000
    same = Outline(title="Logs", headings=(Heading(0, 1, "Logs"),))
    assert same.above(0, 100) == "" and same.above(5, 100) == "Logs"


def test_what_stands_above_a_text_is_embedded_with_it(tmp_path: Path) -> None:
    embedder = Words(tokens_max=200)
    titled = Outline(title="violins", headings=(Heading(0, 1, "strings"),))
    documents = [Document("a", "bow and wood", outline=titled), Document("b", "bow and wood of others")]
    with Index(tmp_path / "index", embedder, keep="codes") as index:
        index.update(documents)
        assert embedder.asked == ["violins: bow and wood", "bow and wood of others"]
        index.compact()
        hit = index.search("violins:", 1, deviations=5.0).hits[0]
        assert (hit.document, hit.text) == ("a", "bow and wood")
        embedder.asked.clear()
        index.cool()
        index.search("bow", 2)
        assert set(embedder.asked) == {"bow", "violins: bow and wood", "bow and wood of others"}, (
            "made again alike"
        )
        # The same, where it is made for those who ask for embeddings.
        index.cool()
        assert index.embeddings([hit])[0] @ embedder.embed(["violins: bow and wood"])[0] > 0.999
        assert index.update(documents).same == 2
        embedder.asked.clear()
        other = Document("a", "bow and wood", outline=Outline(title="cellos"))
        assert index.update([other]).embedded == 1 and embedder.asked == ["cellos: bow and wood"]


def test_a_title_takes_no_tokens_from_its_text() -> None:
    assert Cut(128, is_titled=True).above_letters(Words(tokens_max=256)) == 200
    assert Cut(250, is_titled=True).above_letters(Words(tokens_max=256)) == 18
    assert Cut(256, is_titled=True).above_letters(Words(tokens_max=256)) == 0
    assert Cut(128).above_letters(Words(tokens_max=256)) == 0


def as_before(index: Path) -> None:
    """The file of passages as versions without places wrote it."""
    with sqlite3.connect(index / "passages.sqlite") as file:
        file.execute("alter table document drop column outline")
        file.execute("alter table passage drop column place")
        file.execute("delete from setting where name = 'cut'")
        file.execute("pragma user_version = 2")
    file.close()


def test_an_index_from_before_stays_as_it_was_and_learns_its_places_without_embedding(tmp_path: Path) -> None:
    embedder = Words(tokens_max=200)
    untitled = Document("m", MARKDOWN, is_markdown=True)
    Index.build(tmp_path / "index", [untitled], embedder).close()
    as_before(tmp_path / "index")
    embedder.asked.clear()
    with Index(tmp_path / "index", embedder) as index:
        assert places(index, WORDS) == ("", "")
        assert index.update([untitled]).same == 1
        known = Document("m", MARKDOWN, is_markdown=True, outline=plain.markdown(MARKDOWN).outline)
        embedder.asked.clear()
        changes = index.update([known])
        assert (changes.changed, changes.embedded, embedder.asked) == (1, 0, []), "its texts are embedded alone"
        assert places(index, WORDS)[0].startswith("line ")


def test_damage_of_what_is_said_of_places_is_told(tmp_path: Path) -> None:
    for written in ("{", "[]", '{"headings": [[1]]}', '{"headings": 3}', b"no", b"\x78\x9c", 3):
        with pytest.raises(ValueError):
            read_outline(written)
    titled = Document("a", "text", outline=Outline(title="b"))
    Index.build(tmp_path / "index", [titled], Words()).close()
    with sqlite3.connect(tmp_path / "index/passages.sqlite") as file:
        file.execute("update document set outline = '{'")
    file.close()
    with Index(tmp_path / "index", Words()) as index, pytest.raises(RagError, match="is damaged; remove"):
        index.search("text")
    with sqlite3.connect(tmp_path / "index/passages.sqlite") as file:
        file.execute("update setting set value = cast('{}' as blob) where name = 'cut'")
    file.close()
    with pytest.raises(RagError, match="of its passages is damaged"):
        Index(tmp_path / "index", Words())


def test_passages_are_as_long_and_overlap_as_much_as_was_said(tmp_path: Path) -> None:
    text = " ".join(f"w{place}" for place in range(100))
    splitter = Splitter(Words(tokens_max=200), Cut(22, overlap=5))
    passages = splitter.split(Document("a", text))
    assert all(text[passage.start :].startswith(passage.text) for passage in passages)
    words = [passage.text.split() for passage in passages]
    assert max(map(len, words)) <= 20
    assert all(set(before[-5:]) & set(after[:5]) for before, after in pairwise(words))
    with Index.build(tmp_path / "index", [Document("a", text)], Words(), passage_tokens=12, overlap=2) as index:
        assert len(index) > 9
    with Index(tmp_path / "index", Words()) as index:
        assert index.update([Document("b", text + " end")]).embedded < len(index) / 2 + 2, "its own are kept"
        index.remove(["a", "b"])
    with pytest.raises(RagError, match="say an overlap"):
        Index(tmp_path / "index", Words(), overlap=7)
    with Index(tmp_path / "index", Words(), passage_tokens=20) as index:
        index.add([Document("a", text)])
    for tokens, overlap in ((12, None), (None, 0)):
        with pytest.raises(RagError, match="it has documents in passages of 20, 2 overlapping; leave that out"):
            Index(tmp_path / "index", Words(), passage_tokens=tokens, overlap=overlap)
    with pytest.raises(RagError, match="say 3 to 40: so many words reads"):
        Index(tmp_path / "new", Words(), passage_tokens=300)


def test_cells_are_passages_of_their_own() -> None:
    outline = Outline("cell", (0, 5, 10), is_divided=True)
    found = Splitter(Words()).split(Document("a", "one\n\ntwo\n\nthree", outline=outline))
    assert [(passage.text, passage.place) for passage in found] == [("one", 1), ("two", 2), ("three", 3)]


def test_a_title_of_a_pdf_is_one_that_its_first_page_shows(tmp_path: Path) -> None:
    assert (
        put(tmp_path, "a.pdf", pdf("Log rotation, a survey", title="Log Rotation")).outline.title == "Log Rotation"
    )
    assert put(tmp_path, "b.pdf", pdf("Log rotation", title="Microsoft Word - x.doc")).outline.title == ""


def test_ask_shows_where_as_editors_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scotfree.rag.commands.opening.by_name", lambda *_, **__: Words())
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text(MARKDOWN)
    (folder / "b.pdf").write_bytes(pdf("violin strings"))
    (folder / "c.txt").write_text("drums are struck")
    (folder / "d.txt").write_text("\n\ndrums are struck\n")
    for words in (["index", str(folder), "--quiet"], ["ask", f"{WORDS} kept", "--count", "1"]):
        assert cli.main([*words, "--index", str(tmp_path / "index")]) == 0
    assert f"1. {folder}/a.md:16 (" in (out := capsys.readouterr().out) and ", Logs > Keep)" in out
    assert cli.main(["ask", "violin strings", "--count", "1", "--index", str(tmp_path / "index")]) == 0
    assert f"1. {folder}/b.pdf (1.00, page 1)" in capsys.readouterr().out
    assert cli.main(["ask", "drums are struck", "--count", "2", "--index", str(tmp_path / "index")]) == 0
    out = capsys.readouterr().out
    assert f"1. {folder}/c.txt:1 (1.00)" in out and f"also in: {folder}/d.txt:3\n" in out and "2. " in out
    assert cli.main(["ask", "drums are struck", "--json", "--index", str(tmp_path / "index")]) == 0
    hit = json.loads(capsys.readouterr().out)["hits"][0]
    assert hit["location"] == {"letter": 0, "place": "line 1"}
    assert hit["copies"] == [{"document": f"{folder}/d.txt", "location": {"letter": 2, "place": "line 3"}}]
    assert cli.main(["ask", f"{WORDS} kept", "--json", "--count", "1", "--index", str(tmp_path / "index")]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["location"]["section"] == "Logs > Keep"


def sections(text: str, tokens: int = 40) -> list[tuple[str, str]]:
    """Of each passage its first line and its section."""
    outline = plain.markdown(text).outline
    split = Splitter(Words(tokens_max=tokens)).split(Document("a", text, is_markdown=True, outline=outline))
    assert "".join("".join(one.text for one in split).split()) == "".join(text.split())
    found = []
    for one in split:
        assert text[one.start :].startswith(one.text) and one.place == text.count("\n", 0, one.start) + 1
        found.append((one.text.splitlines()[0], outline.section(one.start, one.start + len(one.text))))
    return found


LONG = " ".join(f"word{place}" for place in range(26))


def test_a_heading_begins_a_passage() -> None:
    assert sections(f"# A\n\n{LONG}\n\n## B\n\n{LONG}\n\n## C\n\n{LONG}\n") == [
        ("# A", "A"),
        ("## B", "A > B"),
        ("## C", "A > C"),
    ]
    # As many as go into a passage, were it not for their headings.
    assert sections(f"# A\n\n{LONG}\n\n# B\n\n{LONG}\n", tokens=100) == [("# A", "A"), ("# B", "B")]


def test_small_sections_beside_each_other_are_one_passage_under_what_they_share() -> None:
    small = "## B\n\none\n\n## C\n\ntwo\n\n### D\n\nthree\n\n"
    assert sections(f"# A\n\n{LONG} {LONG}\n\n{small}# E\n\nfour\n", tokens=60) == [
        ("# A", "A"),
        ("## B", "A"),
        ("# E", "E"),
    ]
    assert sections("# A\n\none\n\n## B\n\ntwo\n") == [("# A", "A")], "all of it stands under it"


def test_a_heading_alone_is_no_passage() -> None:
    # However long what it stands above: both go into a passage here, by its words.
    assert sections(f"# A\n\n## B\n\n{LONG}\n") == [("# A", "A")]
    assert sections(f"# A\n\n## B\n\n{LONG}\n\n## C\n\n### D\n\n{LONG}\n", tokens=60) == [
        ("# A", "A"),
        ("## C", "A > C"),
    ]


def test_headings_of_html_begin_passages_too(tmp_path: Path) -> None:
    page = f"<h1>A</h1><p>{LONG}</p><h2>B</h2><p>{LONG}</p>"
    document = put(tmp_path, "a.html", page.encode())
    with Index.build(tmp_path / "index", [document], Words(tokens_max=100)) as index:
        assert {(hit.text[0], hit.section) for hit in index.search(LONG, 5).hits} == {("A", "A"), ("B", "A > B")}
