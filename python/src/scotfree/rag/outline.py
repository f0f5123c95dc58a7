"""Outlines: what readers go by in a document: title, headings, and the numbers of lines, pages or cells.

A passage is put under the headings in whose part it begins.
"""

from __future__ import annotations

import json
import threading
import zlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple

from scotfree.rag.decoding import decoded

# Of a heading, or a title, so many letters are kept, and of a document so many headings.
LETTERS_MAX: Final = 120
HEADINGS_MAX: Final = 5_000
LINE: Final = "line"
# Beyond that of any heading.
_LEVEL_MAX: Final = 1 << 30
# What is written of one is packed from so many letters on, and has so many bytes at most.
_PACKED_MIN: Final = 200
_BYTES_MAX: Final = 8 << 20
# Of what was read so many headings are kept, some 250 B each.
_KEPT_HEADINGS: Final = 1 << 14
_TITLE_WEIGHT: Final = 4
# Between a heading and the one below it.
_BELOW: Final = " > "


class Heading(NamedTuple):
    """A line that says what comes below it, until the next one of its level or above (1)."""

    # The letter of the document at which it begins.
    start: int
    level: int
    text: str


@dataclass(frozen=True)
class Outline:
    """Of a document."""

    # What is numbered, from 1: `line`, `page`, `cell` or `chapter`; nothing, if this is empty.
    unit: str = ""
    # The letters at which these begin; lines are found in the text.
    starts: tuple[int, ...] = ()
    title: str = ""
    headings: tuple[Heading, ...] = ()
    # No passage goes on from one page, cell or chapter into the next.
    is_divided: bool = False

    def numbers(self, text: str, starts: Iterable[int]) -> Iterator[int | None]:
        """Of each of growing letters, which line, page, cell or chapter it is in."""
        line, at = 1, 0
        for start in starts:
            if self.unit == LINE:
                line, at = line + text.count("\n", at, start), start
                yield line
            else:
                yield bisect_right(self.starts, start) or None

    def within(self, start: int, end: int) -> tuple[Heading, ...]:
        """The headings that begin in a part of the document."""
        first = bisect_left(self._starts, start)
        return self.headings[first : bisect_left(self._starts, end, first)]

    def section(self, start: int, end: int = 0) -> str:
        """The headings under which a passage stands, its own among them: `Logs > Rotation`.

        Of one that ends at `end` and has other headings in it, those under which all of it stands.
        """
        if not self.headings:
            return ""
        within = self.within(start + 1, end)
        level = min(heading.level for heading in within) if within else _LEVEL_MAX
        return _BELOW.join([heading.text for heading in self._path(start) if heading.level < level])

    def above(self, start: int, letters_max: int) -> str:
        """What is said above such a passage and not in it: title and headings, the nearest if they are long."""
        path = self._path(start)
        titled = [] if self.title in ("", *(heading.text for heading in path)) else [self.title]
        found = ""
        for text in reversed([*titled, *(heading.text for heading in path if heading.start < start)]):
            longer = f"{text}{_BELOW}{found}" if found else text
            if len(longer) > letters_max:
                break
            found = longer
        return found

    def _path(self, start: int) -> list[Heading]:
        place = bisect_right(self._starts, start) - 1
        path: list[Heading] = []
        while place >= 0:
            path.append(self.headings[place])
            place = self._above[place]
        return path[::-1]

    @cached_property
    def _starts(self) -> list[int]:
        return [heading.start for heading in self.headings]

    @cached_property
    def _above(self) -> list[int]:
        """Of each heading the one that it stands under, or -1."""
        found: list[int] = []
        open_now: list[int] = []
        for place, heading in enumerate(self.headings):
            while open_now and self.headings[open_now[-1]].level >= heading.level:
                open_now.pop()
            found.append(open_now[-1] if open_now else -1)
            open_now.append(place)
        return found

    def mapped(self, by: Callable[[str], str]) -> Outline:
        """With another text for each, of as many letters."""
        headings = tuple(heading._replace(text=by(heading.text)) for heading in self.headings)
        return replace(self, title=by(self.title), headings=headings)

    def digested(self) -> list[Any]:
        """All of it, as JSON can say it."""
        headings = [[heading.start, heading.level, heading.text] for heading in self.headings]
        return [self.unit, list(self.starts), self.title, headings, self.is_divided]

    def written(self) -> str | bytes:
        """What is kept of it beside its passages, whose numbers are with them; read by `read`."""
        said: dict[str, Any] = {"unit": self.unit} if self.unit else {}
        if self.title:
            said["title"] = self.title
        if self.headings:
            # Each by how far it is from the one before.
            befores = (0, *(heading.start for heading in self.headings))
            pairs = zip(self.headings, befores, strict=False)
            said["headings"] = [[heading.start - before, heading.level, heading.text] for heading, before in pairs]
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":")) if said else ""
        # Headings are half as long then.
        return text if len(text) < _PACKED_MIN else zlib.compress(text.encode())


# A document that says nothing of that.
NONE: Final = Outline()


def read(written: object) -> Outline:
    """What `written` wrote, as a text or bytes; `ValueError`: it is nothing of the kind."""
    if not isinstance(written, str | bytes):
        raise ValueError("neither a text nor bytes")
    return _KEPT.read(written) if written else NONE


class _Kept:
    """Outlines that were read, those used last: of as many documents as have so many headings in all.

    Passages that are found together are often of few documents, as are those of searches that follow one another;
    and to read some hundred headings takes as long as to find the passages.
    """

    def __init__(self, headings_max: int) -> None:
        self._headings_max = headings_max
        self._headings = 0
        self._outlines: OrderedDict[str | bytes, Outline] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, written: str | bytes) -> Outline:
        with self._lock:
            found = self._outlines.get(written)
            if found is not None:
                self._outlines.move_to_end(written)
                return found
        made = _read(written)
        with self._lock:
            if written not in self._outlines:
                self._outlines[written] = made
                self._headings += _weight(made)
            while self._headings > self._headings_max:
                self._headings -= _weight(self._outlines.popitem(last=False)[1])
        return made


def _weight(outline: Outline) -> int:
    """A title and what surrounds it take about as much as some headings."""
    return len(outline.headings) + _TITLE_WEIGHT


_KEPT: Final = _Kept(_KEPT_HEADINGS)


def _read(written: str | bytes) -> Outline:
    try:
        said = decoded(written if isinstance(written, str) else _unpacked(written))
        headings = _headings(said.get("headings", []))
        return Outline(str(said.get("unit", "")), (), str(said.get("title", "")), headings)
    except (ArithmeticError, AttributeError, RecursionError, TypeError, zlib.error) as error:
        raise ValueError(str(error)) from None


def _headings(kept: list[list[Any]]) -> tuple[Heading, ...]:
    """A document has hundreds of them, of which a passage is under few: made by columns, a step for each."""
    if not kept:
        return ()
    gaps, levels, texts = zip(*kept, strict=True)
    if {*map(type, gaps), *map(type, levels)} != {int} or {*map(type, texts)} != {str}:
        raise ValueError("what is no heading")
    return tuple(map(Heading._make, zip(accumulate(gaps), levels, texts, strict=True)))


def _unpacked(written: bytes) -> str:
    return zlib.decompressobj().decompress(written, _BYTES_MAX).decode()


def line(text: str) -> str:
    """A heading or title as one line that is not too long."""
    return " ".join(text.split())[:LETTERS_MAX].rstrip()


def headed(headings: Iterable[Heading]) -> tuple[Heading, ...]:
    """Those that say something, as many as are kept."""
    return tuple(heading for heading in headings if heading.text)[:HEADINGS_MAX]
