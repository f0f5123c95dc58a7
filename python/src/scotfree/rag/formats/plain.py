"""Text as it stands, and Markdown, which is text with headings."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import Final

from scotfree.rag.formats import front_matter
from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.formats.front_matter import Front
from scotfree.rag.outline import LINE, Heading, Outline, headed, line

# What is looked at to tell text from what is none.
_HEAD_BYTES: Final = 8192
# What Windows' programs begin a text with; the longer ones first, since one begins with another.
_MARKS: Final = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# A heading, the line below one, or what begins or ends a block of code.
_MARK: Final = re.compile(
    r"^ {0,3}(?:(?P<signs>#{1,6})(?=[ \t]|$)(?P<text>[^\n]*)$|(?P<fence>```+|~~~+)[^\n]*$)"
    r"|^ {0,3}(?P<above>[^\s>#`~|+*<=\-][^\n]*)\n {0,3}(?P<line>=+|-+)[ \t]*$",
    re.MULTILINE,
)
# Of front matter that is malformed.
_TITLE: Final = re.compile(r"^title[ \t]*[:=]([^\n]*)$", re.MULTILINE)


def decoded(data: bytes) -> str:
    """UTF-16 and UTF-32 that say so by their mark, UTF-8, or else what every byte is a letter of.

    `Unread` says that it is no text.
    """
    for mark, encoding in _MARKS.items():
        if data.startswith(mark):
            return _wide(data, encoding)
    if b"\0" in data[:_HEAD_BYTES]:
        raise Unread("it is no text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _wide(data: bytes, encoding: str) -> str:
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        raise Unread(f"it begins as {encoding.upper()} and is none") from None
    if "\0" in text[:_HEAD_BYTES]:
        raise Unread("it is no text")
    return text


def read(text: str) -> Content:
    """A text, whose lines are numbered."""
    return Content(text, Outline(LINE))


def markdown(text: str) -> Content:
    """A text with the headings that it has by the rules of CommonMark, and with what its front matter says."""
    front = front_matter.read(text) or Front(0)
    outline = Outline(LINE, title=_title(text, front), headings=headed(headings(text, front.end)))
    # Of a note that is nothing else it is the text, too.
    begin = front.end if not front.doubt and text[front.end :].strip() else 0
    return Content(text, outline, front.metadata, begin, front.doubt)


def _title(text: str, front: Front) -> str:
    said = front.metadata.get("title", "")
    if found := front.doubt and _TITLE.search(text, 0, front.end):
        said = found[1].strip(" \t\r\"'")
    return line(str(said)) if isinstance(said, str | int | float) else ""


def headings(text: str, start: int = 0) -> Iterator[Heading]:
    """The headings of a Markdown text from a letter on: those within code are none."""
    fence = ""
    for found in _MARK.finditer(text, start):
        if mark := found["fence"]:
            if not fence:
                fence = mark
            elif mark.startswith(fence):
                fence = ""
        elif not fence:
            level = len(found["signs"]) if found["signs"] else 1 + (found["line"][0] == "-")
            text = (found["text"] or found["above"] or "").strip()
            # Signs behind it, too, are none of its letters.
            bare = text.rstrip("#")
            yield Heading(found.start(), level, line(text if bare and not bare[-1:].isspace() else bare))
