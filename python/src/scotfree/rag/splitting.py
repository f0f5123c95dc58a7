"""Passages: parts of a document that are about one thing, ended where the text ends something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from semantic_text_splitter import MarkdownSplitter, TextSplitter

from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder

# What a passage costs to embed again grows with its length, and what it is about gets blurred; all-MiniLM-L6-v2
# was trained on texts of so many tokens.
TOKENS_MAX: Final = 128
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
        # Filled as far as they go: shorter ones that end at every paragraph find less.
        most = min(TOKENS_MAX, embedder.tokens_max) - _MARKERS
        self._text = TextSplitter.from_callback(embedder.count_tokens, most)
        self._markdown = MarkdownSplitter.from_callback(embedder.count_tokens, most)

    def split(self, document: Document) -> list[Passage]:
        """The passages in their order; together they are the document but for spaces between them."""
        splitter = self._markdown if document.is_markdown else self._text
        return [Passage(start, text) for start, text in splitter.chunk_indices(document.text)]
