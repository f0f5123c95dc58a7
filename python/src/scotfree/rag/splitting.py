"""Passages: parts of a document that are about one thing, ended where the text ends something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.trouble import needed

# What a passage costs to embed again grows with its length, and what it is about gets blurred; all-MiniLM-L6-v2
# was trained on texts of so many tokens.
TOKENS_MAX: Final = 128
# Of which a text is split at once.
PART_LETTERS: Final = 32_768
# The two markers of a text's ends are tokens, too.
_MARKERS: Final = 2


@dataclass(frozen=True)
class Passage:
    """A part of a document, and at which letter of it the part begins."""

    start: int
    text: str


class Splitter:
    """Splits by what an embedder counts as tokens."""

    def __init__(self, embedder: Embedder) -> None:
        self._count = embedder.count_tokens
        # Filled as far as they go: shorter ones that end at every paragraph find less.
        self._most = min(TOKENS_MAX, embedder.tokens_max) - _MARKERS

    @cached_property
    def _text(self) -> Any:
        return needed("semantic_text_splitter", "rag").TextSplitter.from_callback(self._count, self._most)

    @cached_property
    def _markdown(self) -> Any:
        return needed("semantic_text_splitter", "rag").MarkdownSplitter.from_callback(self._count, self._most)

    def split(self, document: Document) -> list[Passage]:
        """The passages in their order; together they are the document but for spaces between them."""
        if document.is_whole:
            return [Passage(0, document.text)]
        splitter = self._markdown if document.is_markdown else self._text
        return [
            Passage(at + start, text)
            for at, part in _parts(document.text)
            for start, text in splitter.chunk_indices(part)
        ]


def _parts(text: str) -> Iterator[tuple[int, str]]:
    """A long text in parts, each with where it begins, ended where a paragraph or else a line ends, if one does.

    The splitter's time grows with the square of some texts, as of those without spaces.
    """
    at = 0
    while len(text) - at > PART_LETTERS:
        least, most = at + PART_LETTERS // 2, at + PART_LETTERS
        ends = (text.rfind(mark, least, most) + len(mark) for mark in ("\n\n", "\n", " "))
        end = next((end for end in ends if end > least), most)
        yield at, text[at:end]
        at = end
    yield at, text[at:]
