"""Headings go with the beginning of what they stand above: alone they say little, and are found for much.

A splitter puts as many paragraphs into a passage as it has room for, and so leaves a heading by itself before a
paragraph that is longer. Of such a paragraph the beginning goes with the heading, up to the end of a sentence, or
else of a word, as far as a passage has room. Only where a document has nothing but headings are these alone.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.outline import Heading

# Where each piece begins, and its text.
Pieces = list[tuple[int, str]]

_WORD: Final = re.compile(r"\S+")
_SPACES: Final = re.compile("[ \t]*")
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+(?=\S)|(?<=[。\uff01\uff1f])(?=\S)|\n\s*(?=\S)")
# Below a heading in Markdown.
_LINE: Final = re.compile(r"\n {0,3}(?:=+|-+)[ \t]*(?=\n|\Z)")
# Of a paragraph so many letters a token are looked at; prose has four.
_LOOKED_LETTERS: Final = 64
# A part of a passage that headings may take at its end, before they begin the next one.
_HEADINGS_PART: Final = 2
# Of a passage, below which what is left of a text is little.
_LEFT_PART: Final = 3


class Headings:
    """Of a document."""

    def __init__(self, document: Document) -> None:
        self._text, self._outline = document.text, document.outline
        # Runs of headings with nothing between them: where each begins and ends.
        self._begins: list[int] = []
        self._ends: list[int] = []
        for heading in document.outline.headings:
            end = _end(self._text, heading)
            if self._ends and self._is_blank(self._ends[-1], heading.start):
                self._ends[-1] = max(end, self._ends[-1])
            else:
                self._begins.append(heading.start)
                self._ends.append(end)

    def is_bare(self, start: int, end: int) -> bool:
        """Whether a part of it has nothing but headings."""
        at = start
        for begin, until in self._runs(start, end):
            if not self._is_blank(at, begin):
                return False
            at = max(at, until)
        return self._is_blank(at, end)

    def run(self, start: int, end: int) -> tuple[int, int] | None:
        """The headings with which such a part ends, if it does: where they begin and end."""
        return next(((begin, until) for begin, until in self._runs(start, end) if begin < end <= until), None)

    def last(self, start: int, end: int) -> int:
        """Where the last heading of such a part begins."""
        return max((heading.start for heading in self._outline.within(start, end)), default=start)

    def joined(self, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Parts one after another, of which those of headings alone go on with the next, or end the last one."""
        before: tuple[int, int] | None = None
        start = end = None
        for begin, end in parts:
            start = begin if start is None else start
            if not self.is_bare(begin, end):
                if before:
                    yield before
                before, start = (start, end), None
        if start is not None and end is not None:
            before = (before[0] if before else start, end)
        if before:
            yield before

    def _runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        at = bisect_left(self._ends, start)
        while at < len(self._begins) and self._begins[at] < end:
            yield self._begins[at], self._ends[at]
            at += 1

    def _is_blank(self, start: int, end: int) -> bool:
        return start >= end or not _WORD.search(self._text, start, end)


def _end(text: str, heading: Heading) -> int:
    """Where a heading's last line ends, with the one that is drawn below it."""
    at, letters = heading.start, 0
    while letters < len(heading.text) and at < len(text):
        line = text.find("\n", at + 1)
        line = len(text) if line < 0 else line
        letters += len(" ".join(text[at:line].split())) + bool(letters)
        at = line
    below = _LINE.match(text, at)
    return below.end() if below else at


@dataclass(frozen=True)
class Recut:
    """Cuts pieces anew where headings would be alone."""

    text: str
    headings: Headings
    count: Callable[[str], int]
    # Tokens of a piece, and of those with which it may begin that end the one before, at most.
    most: int
    overlap: int
    # A splitter of pieces of so many tokens, without overlap.
    splitter: Callable[[int], Any]

    def pieces(self, found: Pieces, split: Callable[[str], Pieces], begin: int, end: int) -> None:
        """Adds the pieces of a part of the text as `split` cuts it; those found before are of the same section."""
        left = begin
        while left < end:
            left = self._some(found, split(self.text[left:end]), left, end)

    def _some(self, found: Pieces, chunks: Pieces, left: int, end: int) -> int:
        """Adds pieces as they are cut, and the first that is to be cut otherwise; says from where on to go on."""
        for at, chunk in chunks:
            start, until = left + at, left + at + len(chunk)
            if found and until <= found[-1][0] + len(found[-1][1]):
                # It is the end of the one before.
                continue
            run = self.headings.run(start, until)
            again = self._again(found, start, until, run, end) if run else None
            if again is not None:
                return again
            found.append((start, chunk))
        return end

    def _again(self, found: Pieces, start: int, stop: int, run: tuple[int, int], end: int) -> int | None:
        """Of a piece that ends with headings: from where on to cut anew; nothing, if it stays as it is."""
        begin, until = run
        if not self.headings.is_bare(start, begin):
            if self.count(self.text[begin:until]) * _HEADINGS_PART > self.most:
                return None
            found.append((start, self.text[start:begin].rstrip()))
            return begin
        body = _WORD.search(self.text, min(until, end), end)
        if body is None:
            return end if self._ends_the_last(found, start, end) else None
        if (cut := self._cut(start, body.start(), end)) is not None:
            found.append((start, self.text[start:cut]))
            return self._overlapped(body.start(), cut)
        # More headings than a piece takes: the last of them begins the next one.
        if (last := self.headings.last(start, until)) > start and not _WORD.search(self.text, stop, until):
            found.append((start, self.text[start:last].rstrip()))
            return last
        return None

    def _cut(self, start: int, body: int, end: int) -> int | None:
        """Where a piece of headings and the beginning of what follows ends; nothing, if there is no room."""
        room = self.most - self.count(self.text[start:body])
        looked = self.text[body : min(end, body + max(0, room) * _LOOKED_LETTERS)]
        if body + len(looked) == end:
            room = _shared(room, self.count(looked))
        while room > 0:
            at, chunk = self.splitter(room).chunk_indices(looked)[0]
            cut: int = body + at + len(chunk)
            over = self.count(self.text[start:cut]) - self.most
            if over <= 0:
                return cut
            room -= over
        return None

    def _overlapped(self, body: int, cut: int) -> int:
        """Where the next piece begins: with as many words of this one as may come again."""
        if not self.overlap:
            spaces = _SPACES.match(self.text, cut)
            return spaces.end() if spaces else cut
        words = [word.start() for word in _WORD.finditer(self.text, body, cut)]
        return self._first_that_fits(words, cut, self.overlap, cut)

    def _ends_the_last(self, found: Pieces, start: int, end: int) -> bool:
        """Whether headings with nothing below them have been put to the end of the text before them."""
        if not found:
            return False
        before, text = found[-1]
        last = self.text[start:end].rstrip()
        until = start + len(last)
        if self.count(self.text[before:until]) <= self.most:
            found[-1] = (before, self.text[before:until])
            return True
        sentences = [before + one.end() for one in _SENTENCE.finditer(text)]
        words = [before + word.start() for word in _WORD.finditer(text)][1:]
        cut = self._first_that_fits(sentences[-1:], until, self.most, until)
        if cut == until:
            cut = self._first_that_fits(words, until, self.most, until)
        if cut == until or self.headings.is_bare(before, cut):
            return False
        found[-1:] = [(before, self.text[before:cut].rstrip()), (cut, self.text[cut:until])]
        return True

    def _first_that_fits(self, starts: list[int], end: int, most: int, other: int) -> int:
        """The first of growing letters from which on the text up to `end` has so many tokens, or else another."""
        place = bisect_left(starts, True, key=lambda at: self.count(self.text[at:end]) <= most)
        return starts[place] if place < len(starts) else other


def _shared(room: int, tokens: int) -> int:
    """How much of the room a text takes of which little would be left: half of the text."""
    return (tokens + 1) // 2 if room < tokens < room + room // _LEFT_PART else room
