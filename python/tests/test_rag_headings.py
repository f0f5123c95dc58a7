"""A heading is in one passage with the beginning of what it stands above, whatever else a document has."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import pytest
from packed import notebook

from bench.words import Words
from scotfree.rag.documents import Document, read
from scotfree.rag.formats import plain
from scotfree.rag.splitting import Cut, Passage, Splitter


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{at}" for at in range(count))


def note(text: str) -> Document:
    return Document("a.md", text, is_markdown=True, outline=plain.markdown(text).outline)


def cut(document: Document, tokens: int = 22, overlap: int = 0) -> list[Passage]:
    """The passages, which together are the document."""
    found = Splitter(Words(tokens_max=tokens), Cut(tokens, overlap)).split(document)
    end = 0
    for one in found:
        assert document.text[one.start :].startswith(one.text)
        assert len(one.text.split()) <= tokens - 2
        assert not document.text[end : one.start].strip(), "nothing is left out"
        assert overlap or one.start >= end, "nothing comes twice"
        assert one.start + len(one.text) > end
        end = one.start + len(one.text)
    assert not document.text[end:].strip()
    if document.outline.unit == "line":
        assert [one.place for one in found] == [document.text.count("\n", 0, one.start) + 1 for one in found]
    return found


def alone(document: Document, passages: list[Passage]) -> list[str]:
    """Passages without a word that is not in a heading, but for those that headings fill."""
    headings = {word for one in document.outline.headings for word in one.text.split()}
    signs = {"#", "##", "###", "---", "==="}
    found = [one.text for one in passages if not set(one.text.split()) - headings - signs]
    return [text for text in found if text.count("\n\n") < 2]


@pytest.mark.parametrize("heading", ["# Logs", "Logs of\n===", "# Manual\n\n## Logs", "# Logs ##"])
def test_a_heading_goes_with_the_beginning_of_a_long_paragraph(heading: str) -> None:
    document = note(f"{heading}\n\n{words(30)}\n\n{words(15, 'more')}\n")
    first, second, *_ = cut(document)
    assert first.text.startswith(f"{heading}\n\nword0 word1 ") and second.text.startswith("word")
    assert len(first.text.split()) == 20, "as far as there is room"


def test_the_paragraph_is_cut_where_a_sentence_ends() -> None:
    document = note(f"# Logs\n\n{words(10)} end. {words(12, 'More')}\n")
    assert [one.text.split()[-1] for one in cut(document)] == ["end.", "More11"]


def test_little_is_not_left_of_a_paragraph() -> None:
    document = note(f"# Logs\n\n{words(20)}\n")
    assert [len(one.text.split()) for one in cut(document)] == [12, 10]


def test_headings_of_other_kinds_go_with_their_text(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(f"<h1>Logs<br>kept</h1><p>{words(40)}</p><h2>End</h2>")
    document = read(tmp_path / "a.html")
    assert cut(document)[0].text.startswith("Logs\nkept\nword0")
    assert not alone(document, cut(document))
    assert cut(document)[-1].text.endswith("word39\n\nEnd")


def test_a_cell_that_is_a_heading_goes_with_the_next(tmp_path: Path) -> None:
    cells = [("markdown", "# Data"), ("code", "load"), ("markdown", "## Plot"), ("code", "show"), ("code", "save")]
    (tmp_path / "a.ipynb").write_bytes(notebook(cells))
    found = cut(read(tmp_path / "a.ipynb"))
    assert [(one.text.split()[-1], one.place) for one in found] == [("load", 1), ("show", 3), ("save", 5)]


def test_a_section_of_nothing_goes_with_the_next_and_the_last_with_the_one_before() -> None:
    document = note(f"# A\n\n{words(19)}\n\n### Empty\n\n# B\n\n{words(30)}\n\n## End\n")
    found = cut(document)
    assert not alone(document, found)
    assert "### Empty\n\n# B\n\nword0" in "".join(one.text for one in found)
    assert found[-1].text.startswith("word") and found[-1].text.endswith("## End")


def test_only_a_document_of_nothing_else_has_headings_alone() -> None:
    text = "".join(f"## part{at}\n\n" for at in range(40))
    assert len(cut(note(text))) > 1 and [one.text for one in cut(note("# A\n"))] == ["# A"]
    document = note(f"{text}{words(30)}\n")
    with_text = next(one for one in cut(document) if "word0" in one.text)
    assert with_text.text.startswith("## part")


def test_passages_overlap_behind_a_heading_too() -> None:
    document = note(f"# Logs\n\n{words(60)}\n")
    found = cut(document, overlap=4)
    assert found[0].text.startswith("# Logs\n\nword0")
    for before, after in pairwise(found):
        assert 1 <= len(set(before.text.split()) & set(after.text.split())) <= 4
        assert "Logs" not in after.text


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_note_has_no_heading_is_alone(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [words(chance.randint(1, 6))] * chance.randint(0, 1)
    for at in range(chance.randint(1, 12)):
        pieces.append("#" * chance.randint(1, 3) + f" head{at} " + words(chance.randint(0, 2), "top"))
        pieces += [words(chance.choice((3, 20, 70)), f"p{at}x") for _ in range(chance.choice((0, 1, 1, 2)))]
    pieces.append(words(3, "last"))
    document = note("\n\n".join(pieces) + "\n" + "\n## end\n" * chance.randint(0, 1))
    overlap = chance.choice((0, 0, 5))
    assert not alone(document, cut(document, chance.choice((22, 34, 60)), overlap))


class Lines(Words):
    """Together a heading and its text are more than each by itself."""

    def count_tokens(self, text: str) -> int:
        """Its words, and the empty lines between them."""
        return len(text.split()) + 2 * text.strip().count("\n\n")


def test_what_is_joined_has_room_together() -> None:
    splitter = Splitter(Lines(tokens_max=22))
    first, *_ = splitter.split(note(f"# Logs\n\n{words(60)}\n"))
    assert Lines().count_tokens(first.text) == 20 and first.text.endswith("word15")
