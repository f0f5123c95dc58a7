"""Books (.epub): their chapters, each a page of HTML, in the order in which they are read."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from scotfree.rag.formats import html, plain
from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.formats.packed import Packed, parse
from scotfree.rag.outline import Heading, Outline, headed, line

_CONTAINER: Final = "META-INF/container.xml"
_LOCKED: Final = "META-INF/encryption.xml"
_PAGES: Final = ("application/xhtml+xml", "text/html")
_BREAK: Final = "\n\n"


@dataclass
class _Book:
    """What its list says."""

    title: list[str] = field(default_factory=list)
    # By their ids: paths of pages.
    pages: dict[str, str] = field(default_factory=dict)
    # Ids of chapters in their order.
    order: list[str] = field(default_factory=list)


def read(data: bytes, bytes_max: int) -> Content:
    """Its text with where chapters begin; `Unread` says why there is none."""
    packed = Packed(data, bytes_max)
    at = _list(packed)
    book = _book(packed, at)
    texts: list[str] = []
    starts: list[int] = []
    headings: list[Heading] = []
    written = 0
    for chapter in _chapters(packed, book, at):
        starts.append(written)
        headings += [Heading(written + one.start, one.level, one.text) for one in chapter.outline.headings]
        texts.append(chapter.text)
        written += len(chapter.text) + len(_BREAK)
    outline = Outline("chapter", tuple(starts), line("".join(book.title)), headed(headings), is_divided=True)
    return Content(_BREAK.join(texts), outline)


def _list(packed: Packed) -> str:
    """Where the list of what is in the book is."""
    found: list[str] = []

    def begin(name: str, said: dict[str, str]) -> None:
        if name == "rootfile":
            found.append(said.get("full-path", ""))

    parse(_CONTAINER, packed.read(_CONTAINER), begin, lambda _: None, lambda _: None)
    if not found:
        raise Unread(f"{_CONTAINER} in it names no book")
    return found[0]


def _book(packed: Packed, at: str) -> _Book:
    book = _Book()
    open_now: list[str] = []

    def begin(name: str, said: dict[str, str]) -> None:
        open_now.append(name)
        if name == "item" and said.get("media-type") in _PAGES:
            path = posixpath.join(posixpath.dirname(at), unquote(said.get("href", "").partition("#")[0]))
            book.pages[said.get("id", "")] = posixpath.normpath(path)
        elif name == "itemref":
            book.order.append(said.get("idref", ""))

    def letters(text: str) -> None:
        if open_now[-1:] == ["title"] and "metadata" in open_now:
            book.title.append(text)

    def end(_: str) -> None:
        open_now.pop()

    parse(at, packed.read(at), begin, end, letters)
    return book


def _chapters(packed: Packed, book: _Book, at: str) -> Iterator[Content]:
    """Those that are there; one that is named twice is read once."""
    locked = packed.read(_LOCKED).decode(errors="replace") if _LOCKED in packed else ""
    for path in dict.fromkeys(book.pages[name] for name in book.order if name in book.pages):
        if path in locked:
            raise Unread("it is encrypted")
        if path in packed:
            yield html.read(plain.decoded(packed.read(path)))
