"""Passages: parts of a document that are about one thing, ended where the text ends something."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.headings import Headings, Pieces, Recut
from scotfree.rag.outline import Outline
from scotfree.rag.trouble import RagError, needed

# What a passage costs to embed again grows with its length, and what it is about gets blurred; all-MiniLM-L6-v2
# was trained on texts of so many tokens.
TOKENS_MAX: Final = 128
# Of which a text is split at once.
PART_LETTERS: Final = 32_768
# The two markers of a text's ends are tokens, too.
_MARKERS: Final = 2
# More of the passage before than half of one would be the same twice.
_OVERLAP_MAX: Final = 2
# Of what stands above a passage so many letters are embedded with it, at most; a token has some three.
_ABOVE_LETTERS_MAX: Final = 200
_TOKEN_LETTERS: Final = 3
# Of prose a token has so many; a section of less than a third of a passage is small.
_LETTERS_A_TOKEN: Final = 4
_SMALL_LETTERS: Final = 160
# Beside the words of a heading, at most.
_MARKS_LETTERS: Final = 12


@dataclass(frozen=True)
class Passage:
    """A part of a document, and at which letter of it the part begins."""

    start: int
    text: str
    # Which line, page or cell that is in; none, if its document has no such.
    place: int | None = None


@dataclass(frozen=True)
class Cut:
    """How an index cuts documents into passages, and what is embedded of them: the same for all of them."""

    tokens: int = TOKENS_MAX
    # Tokens with which a passage begins that are the end of the one before, at most.
    overlap: int = 0
    # Whether title and headings are embedded with a text, in front of it.
    is_titled: bool = False

    def written(self) -> bytes:
        """To be kept; read by `read`."""
        said = {"tokens": self.tokens, "overlap": self.overlap, "titled": self.is_titled}
        return json.dumps(said).encode()

    @staticmethod
    def read(written: bytes | None) -> Cut:
        """What was kept; of an index from before there was a choice nothing is."""
        if written is None:
            return Cut()
        try:
            said = json.loads(written)
            return Cut(int(said["tokens"]), int(said["overlap"]), bool(said["titled"]))
        except (ArithmeticError, KeyError, TypeError, ValueError):
            raise RagError(
                "open the index: what it says of its passages is damaged", "remove its folder and index again"
            ) from None

    def checked(self, embedder: Embedder) -> Cut:
        """Itself; a `RagError` says that an embedder cannot take such passages."""
        tried = f"make passages of {self.tokens} tokens, of which {self.overlap} overlap"
        if not _MARKERS < self.tokens <= max(TOKENS_MAX, embedder.tokens_max):
            raise RagError(tried, f"say {_MARKERS + 1} to {embedder.tokens_max}: so many {embedder.name} reads")
        if not 0 <= self.overlap <= self.tokens // _OVERLAP_MAX:
            raise RagError(tried, f"say an overlap from 0 to half of them, {self.tokens // _OVERLAP_MAX}")
        return self

    def above_letters(self, embedder: Embedder) -> int:
        """How much of what stands above a passage is embedded with it: as much as an embedder reads beside it."""
        room = max(0, embedder.tokens_max - self.tokens) * _TOKEN_LETTERS
        return min(_ABOVE_LETTERS_MAX, room) if self.is_titled else 0


# Of a new index.
NEW: Final = Cut(is_titled=True)


class Splitter:
    """Splits by what an embedder counts as tokens."""

    def __init__(self, embedder: Embedder, cut: Cut | None = None) -> None:
        cut = cut or Cut()
        self._count = embedder.count_tokens
        # Filled as far as they go: shorter ones that end at every paragraph find less.
        self._most = max(1, min(cut.tokens, embedder.tokens_max) - _MARKERS)
        self._overlap = min(cut.overlap, self._most - 1)

    @cached_property
    def _text(self) -> Any:
        return self._of(self._most, is_markdown=False, overlap=self._overlap)

    @cached_property
    def _markdown(self) -> Any:
        return self._of(self._most, is_markdown=True, overlap=self._overlap)

    def _of(self, most: int, *, is_markdown: bool, overlap: int = 0) -> Any:
        package = needed("semantic_text_splitter", "rag")
        splitter = package.MarkdownSplitter if is_markdown else package.TextSplitter
        return splitter.from_callback(self._count, most, overlap=overlap)

    def split(self, document: Document, told: Callable[[float], None] = lambda _: None) -> list[Passage]:
        """The passages in their order; together they are the document but for spaces between them.

        `told` is told how much of a long document is split, as a share of one.
        """
        if document.is_whole:
            return [Passage(document.begin, document.text[document.begin :])]
        split = (self._markdown if document.is_markdown else self._text).chunk_indices
        headings = Headings(document)
        smaller = partial(self._of, is_markdown=document.is_markdown)
        recut = Recut(document.text, headings, self._count, self._most, self._overlap, smaller)
        found: Pieces = []
        ended = 0
        for begin, until in _divided(document, headings, self._most * _LETTERS_A_TOKEN):
            own: Pieces = []
            for at, part in _parts(document.text[begin:until]):
                recut.pieces(own, split, begin + at, begin + at + len(part))
                if begin + at - ended >= PART_LETTERS:
                    ended = begin + at
                    told(ended / len(document.text))
            found += own
        places = document.outline.numbers(document.text, (start for start, _ in found))
        return [Passage(start, text, place) for (start, text), place in zip(found, places, strict=True)]


def _divided(document: Document, headings: Headings, letters_max: int) -> Iterator[tuple[int, int]]:
    """The parts of a document that no passage goes beyond: where each begins and ends."""
    for start, end in headings.joined(_wholes(document)):
        yield from headings.joined(_sections(document.outline, start, end, letters_max))


def _wholes(document: Document) -> Iterator[tuple[int, int]]:
    outline, end = document.outline, len(document.text)
    yield from pairwise((*outline.starts, end)) if outline.is_divided else [(document.begin, end)]


def _sections(outline: Outline, start: int, end: int, letters_max: int) -> Iterator[tuple[int, int]]:
    """From heading to heading; a small section goes on with the next one, if that is no part of another."""
    headings = outline.within(start, end)
    ends = [*(heading.start for heading in headings), end][1:]
    level, until = 0, headings[0].start if headings else end
    for heading, after in zip(headings, ends, strict=True):
        own = len(heading.text) + _MARKS_LETTERS
        is_small = until - start < _SMALL_LETTERS or own < after - until < _SMALL_LETTERS
        if not (is_small and heading.level >= level and after - start <= letters_max):
            if until > start:
                yield start, until
            start, level = until, heading.level
        until = after
    yield start, until


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
