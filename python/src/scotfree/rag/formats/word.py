"""Word's documents (.docx): their paragraphs, of which some are headings."""

from __future__ import annotations

import re
from typing import Final

from scotfree.rag.formats.content import Content
from scotfree.rag.formats.packed import Packed, parse
from scotfree.rag.outline import Heading, Outline, headed, line

_TEXT: Final = "word/document.xml"
_ABOUT: Final = "docProps/core.xml"
# Styles are named in the language of who wrote it, but these by their number in most.
_HEADING: Final = re.compile(r"(?:heading|berschrift|titre|t[ií]tulo|titolo|kop|rubrik)\s?([1-9])$", re.IGNORECASE)
_INSTEAD: Final = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}


def read(data: bytes, bytes_max: int) -> Content:
    """Its text; `Unread` says why there is none."""
    packed, paragraphs = Packed(data, bytes_max), _Paragraphs()
    parse(_TEXT, packed.read(_TEXT), paragraphs.begin, paragraphs.end, paragraphs.letters)
    title = _title(packed) if _ABOUT in packed else ""
    return Content("".join(paragraphs.pieces), Outline(title=title, headings=headed(paragraphs.headings)))


class _Paragraphs:
    """What is told of the document as text."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.headings: list[Heading] = []
        self._written = 0
        self._paragraph: list[str] = []
        self._level = 0
        self._is_text = False
        # Within what older programs show in place of what stands beside it.
        self._is_instead = False

    def begin(self, name: str, said: dict[str, str]) -> None:
        if name == "t":
            self._is_text = not self._is_instead
        elif name == "Fallback":
            self._is_instead = True
        elif name == "pStyle":
            found = _HEADING.search(said.get("val", ""))
            self._level = int(found[1]) if found else self._level
        elif name == "outlineLvl" and said.get("val", "").isdecimal() and int(said["val"]) < 9:
            self._level = int(said["val"]) + 1
        elif name in _INSTEAD and not (name == "tab" and "pos" in said):
            self._paragraph.append(_INSTEAD[name])

    def letters(self, text: str) -> None:
        if self._is_text:
            self._paragraph.append(text)

    def end(self, name: str) -> None:
        if name == "t":
            self._is_text = False
        elif name == "Fallback":
            self._is_instead = False
        elif name == "p":
            self._end("".join(self._paragraph).strip())

    def _end(self, text: str) -> None:
        if text and self._level:
            self.headings.append(Heading(self._written, self._level, line(text)))
        if text:
            # What a heading is of comes in the next line.
            piece = text + ("\n" if self._level else "\n\n")
            self.pieces.append(piece)
            self._written += len(piece)
        self._paragraph, self._level = [], 0


def _title(packed: Packed) -> str:
    open_now: list[str] = []
    found: list[str] = []
    parse(
        _ABOUT,
        packed.read(_ABOUT),
        lambda name, _: open_now.append(name),
        lambda _: open_now.clear(),
        lambda text: found.append(text) if open_now[-1:] == ["title"] else None,
    )
    return line("".join(found))
