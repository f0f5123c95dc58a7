"""Front matter of Markdown notes is what they say of themselves: filters ask for it, passages do not hold it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.words import Words
from scotfree.rag import Index, cli
from scotfree.rag.documents import read
from scotfree.rag.formats import front_matter, plain

NOTE = """---
title: "Two weeks in Norway"
date: 2024-05-01
tags: [travel, fjord]
rating: 4
draft: false
suffix: .doc
---
# Boats

The ferry leaves at noon.
"""


def metadata(inside: str) -> dict[str, Any]:
    found = front_matter.read(f"---\n{inside}\n---\ntext")
    assert found and not found.doubt and found.end == len(inside) + 9
    return found.metadata


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("date: 2024-05-01", {"date": "2024-05-01"}),
        ("date: 2024-13-45 10:00", {"date": "2024-13-45 10:00"}),
        ("a: 12\nb: -1.5\nc: 1.e\nd: .5e3", {"a": 12, "b": -1.5, "c": "1.e", "d": 500.0}),
        ("a: '12'\nb: 007\nc: 12:30\nd: 1_000", {"a": "12", "b": "007", "c": "12:30", "d": "1_000"}),
        ("a: 1234567890123456789\nb: 1.0e999\nc: .nan", {"a": "1234567890123456789", "b": "1.0e999", "c": ".nan"}),
        ("a: true\nb: no\nc: on\nNO: 1", {"a": True, "b": "no", "c": "on", "NO": 1}),
        ("a:\nb: ~\nc: ''\nd: []", {"c": ""}),
        ("tags:\n- one\n- 2\n-\n- [three]", {"tags": ["one", 2, "three"]}),
        ("tags: [one]", {"tags": ["one"]}),
        ("a:\n  b:\n    c: 1\n  d: 2", {"a.b.c": 1, "a.d": 2}),
        ("who:\n- name: Ann\n- name: Bob", {"who.name": ["Ann", "Bob"]}),
        ("a.b: 1\na: {b: 1}", {"a.b": [1, 1]}),
        ("2024: a\ntrue: b", {"2024": "a", "true": "b"}),
        ("# nothing said", {}),
        ("said: |\n  two\n  lines", {"said": "two\nlines\n"}),
    ],
)
def test_what_front_matter_says(inside: str, said: dict[str, Any]) -> None:
    assert metadata(inside) == said
    assert all(type(value) is type(said[key]) for key, value in metadata(inside).items())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("---\ntitle: one: two\n---\ntext", "no YAML: mapping values"),
        ("---\na: &a [x]\nb: *a\n---\ntext", "anchors, aliases or tags"),
        ("---\na: &a x\n---\ntext", "anchors, aliases or tags"),
        ("---\na: *a\n---\ntext", "anchors, aliases or tags"),
        ("---\na: !!python/object:os.system x\n---\ntext", "anchors, aliases or tags"),
        ("---\na: " + "[" * 16 + "]" * 16 + "\n---\ntext", "more than 16 deep"),
        ("---\na: " + "[" * 60_000 + "\n---\ntext", "more than 16 deep"),
        ("---\na: " + "ö" * 33_000 + "\n---\ntext", "no end within 64 KiB"),
        ("---\na: " + "x" * 70_000 + "\n---\ntext", "no end within 64 KiB"),
        ("---\ntitle: one\n\ntext", "no end within 64 KiB"),
        ("---\n- one\n- two\n---\ntext", "a list"),
        ("---\n[a]: b\n---\ntext", "a key in it is a list"),
        ("---\na: 1\n--- b\n---\ntext", "several"),
        ('---\na: "\\ud800"\n---\ntext', "no YAML"),
        ("---\na: \x07\n---\ntext", "no YAML"),
    ],
)
def test_what_is_malformed_is_left_as_text_and_told(text: str, why: str) -> None:
    content = plain.markdown(text)
    assert why in content.doubt and content.text == text
    assert (content.begin, content.metadata) == (0, {})


@pytest.mark.parametrize(
    "text",
    ["---\n\ntext", "---\ntext\n---\n", "text\n---\na: 1\n---\n", " ---\na: 1\n---\n", "----\na: 1\n----\n"],
)
def test_lines_that_are_no_front_matter_are_text(text: str) -> None:
    content = plain.markdown(text)
    assert (content.begin, content.metadata, content.doubt) == (0, {}, "")


@pytest.mark.parametrize("text", ["---\r\na: 1\r\n---\r\ntext", "--- \na: 1\n...\ntext", "---\na: 1\n---\ntext"])
def test_front_matter_ends_as_programs_write_it(text: str) -> None:
    content = plain.markdown(text)
    assert content.metadata == {"a": 1} and text[content.begin :] == "text"


def test_a_malformed_title_is_a_title_and_no_heading() -> None:
    outline = plain.markdown("---\ntitle: one: two\n---\n# Three\n").outline
    assert outline.title == "one: two" and [one.text for one in outline.headings] == ["Three"]
    assert plain.markdown("---\ntitle: 1984\n---\ntext").outline.title == "1984"
    assert plain.markdown("---\ntitle: [a]\n---\ntext").outline.title == ""


def test_a_notes_passages_are_what_stands_below(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(NOTE)
    embedder = Words(tokens_max=200)
    with Index(tmp_path / "index", embedder) as index:
        index.update([read(tmp_path / "a.md")])
        (hit,) = index.search("ferry", 5).hits
        assert (hit.location, hit.section) == ("line 9", "Boats")
        assert hit.text == "# Boats\n\nThe ferry leaves at noon." and NOTE[hit.start :].startswith(hit.text)
        assert hit.metadata["suffix"] == ".md", "whatever it says"
        assert embedder.asked[0].startswith("Two weeks in Norway: # Boats")
        for where, is_found in (
            ({"date": {"$gte": "2024-05"}}, True),
            ({"date": {"$gte": "2024-06"}}, False),
            ({"tags": "travel"}, True),
            ({"draft": False, "rating": {"$gt": 3}}, True),
        ):
            assert bool(index.documents(where)) == is_found


def test_front_matter_that_changes_alone_embeds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text(NOTE)
    with Index(tmp_path / "index", Words(tokens_max=200)) as index:
        assert index.update([read(path)]).embedded == 1
        path.write_text(NOTE.replace("rating: 4", "rating: 5\nby:\n  - Ann"))
        changes = index.update([read(path)])
        assert (changes.changed, changes.embedded) == (1, 0)
        (hit,) = index.search("ferry", 5).hits
        assert hit.metadata["rating"] == 5 and hit.metadata["by"] == ["Ann"] and hit.location == "line 11"
        assert index.update([read(path)]).same == 1


def test_a_note_of_nothing_else_is_found_by_it(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("---\nisbn: 12-34\ntags: [book]\n---\n\n")
    with Index.build(tmp_path / "index", [read(tmp_path / "a.md")], Words()) as index:
        (hit,) = index.search("isbn: 12-34", 5).hits
        assert hit.metadata == {"isbn": "12-34", "tags": ["book"], "suffix": ".md"} and "isbn" in hit.text


def test_the_command_finds_notes_by_their_front_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("scotfree.rag.commands.opening.by_name", lambda *_, **__: Words())
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/new.md").write_text(NOTE)
    (tmp_path / "notes/old.md").write_text(NOTE.replace("2024-05-01", "2023-01-01").replace("travel", "home"))
    (tmp_path / "notes/bad.md").write_text("---\ntitle: a: b\n---\nThe ferry is late.\n")
    index = ["--index", str(tmp_path / "index")]
    assert cli.main(["index", str(tmp_path / "notes"), *index]) == 0
    told = capsys.readouterr().err
    assert "3 files added" in told
    assert "files with front matter that is left as text: 1\n  1: it is no YAML" in told and "notes/bad.md" in told
    for condition, found in {
        "date>=2024-05": ["new.md"],
        "date<2024": ["old.md"],
        "tags=travel": ["new.md"],
        "tags=fjord": ["new.md", "old.md"],
        "draft=false": ["new.md", "old.md"],
        "suffix=.md": ["bad.md", "new.md", "old.md"],
    }.items():
        assert cli.main(["ask", "ferry", "--json", "--where", condition, *index]) == 0
        hits = json.loads(capsys.readouterr().out)["hits"]
        names = [Path(place["document"]).name for hit in hits for place in (hit, *hit["copies"])]
        assert sorted(names) == found, condition


HUGO = """+++
title = 'Two weeks in Norway'
date = 2024-05-01
tags = ["travel", "fjord"]
draft = false
suffix = ".doc"
[author]
name = "Ann"
+++
# Boats

The ferry leaves at noon.
"""


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("date = 2024-05-01", {"date": "2024-05-01"}),
        ("at = 2024-05-01T10:00:00+02:00\non = 10:30:00", {"at": "2024-05-01T10:00:00+02:00", "on": "10:30:00"}),
        ("a = 12\nb = -1.5\nc = 1_000\nd = 0x10", {"a": 12, "b": -1.5, "c": 1000, "d": 16}),
        ("a = 1234567890123456789\nb = inf\nc = 1e999", {"a": "1234567890123456789", "b": "inf", "c": "1e999"}),
        ("a = true\nb = ''\nc = []", {"a": True, "b": ""}),
        ("tags = ['one', 2, ['three']]", {"tags": ["one", 2, "three"]}),
        ("a.b.c = 1\n[a.d]\ne = 2", {"a.b.c": 1, "a.d.e": 2}),
        ("[[who]]\nname = 'Ann'\n[[who]]\nname = 'Bob'", {"who.name": ["Ann", "Bob"]}),
        ("# nothing said", {}),
        ("a = '...'\nb = '''\n---\n'''", {"a": "...", "b": "---\n"}),
    ],
)
@pytest.mark.parametrize("line", ["\n", "\r\n"])
def test_what_front_matter_in_toml_says(inside: str, said: dict[str, Any], line: str) -> None:
    text = f"+++\n{inside}\n+++\ntext".replace("\n", line)
    found = front_matter.read(text)
    assert found and not found.doubt and text[found.end :] == "text"
    assert found.metadata == said
    assert all(type(value) is type(said[key]) for key, value in found.metadata.items())


@pytest.mark.parametrize(
    ("inside", "why"),
    [
        ("title = one", "no TOML: Invalid value"),
        ("a = 1\na = 2", "no TOML: Cannot overwrite"),
        ("a = " + "[" * 16 + "]" * 16, "more than 16 deep"),
        ("a = " + "[" * 60_000, "more than 16 deep"),
        (".".join("a" * 30_000) + " = 1", "more than 16 deep"),
        (".".join(['"a"'] * 15_000) + " = 1", "more than 16 deep"),
        ("b = {" + " . ".join("a" * 15_000) + " = 1}", "more than 16 deep"),
        ("a = " + "9" * 5_000, "no TOML"),
        ("a = '" + "x" * 70_000 + "'", "no end within 64 KiB"),
        ("a = 1\n[b]\nc = \x07", "no TOML"),
    ],
)
def test_what_is_malformed_in_toml_is_left_as_text_and_told(inside: str, why: str) -> None:
    found = front_matter.read(f"+++\n{inside}\n+++\ntext")
    assert found and why in found.doubt and not found.metadata


@pytest.mark.parametrize("text", ["+++\nHello there\n+++\ntext", "+++\n", "++++\na = 1\n+++\n", "+++\ntext"])
def test_lines_of_plus_signs_are_no_front_matter(text: str) -> None:
    assert front_matter.read(text) is None


def test_a_note_of_hugo_is_read_as_others_are(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(HUGO)
    document = read(tmp_path / "a.md")
    assert (
        document.text[document.begin :].startswith("# Boats") and document.outline.title == "Two weeks in Norway"
    )
    assert document.metadata == {
        "title": "Two weeks in Norway",
        "date": "2024-05-01",
        "tags": ["travel", "fjord"],
        "draft": False,
        "author.name": "Ann",
        "suffix": ".md",
    }
    (tmp_path / "b.md").write_text("+++\ntitle = 'Odd'\na = one\n+++\ntext")
    told: list[str] = []
    document = read(tmp_path / "b.md", told.append)
    assert document.outline.title == "Odd" and document.begin == 0 and "no TOML" in told[0]
