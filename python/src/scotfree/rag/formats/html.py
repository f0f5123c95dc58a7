"""HTML as its readers see it: blocks end lines, what stands within a line ends nothing, `pre` stays as it is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.outline import Heading, Outline, headed, line
from scotfree.rag.trouble import needed

# A parser looks through all that are open for each element that begins; pages have some dozens, and browsers go as
# deep as this.
DEPTH_MAX: Final = 512
# Each takes some 400 bytes with its text while a page is read; a book on one page has some hundred thousand.
ELEMENTS_MAX: Final = 500_000
_NESTED: Final = re.compile(
    "<(/?)(article|aside|blockquote|center|details|div|dl|fieldset|figure|footer|form|header|main|menu|nav|object|"
    "ol|pre|section|span|table|ul)(?![a-z0-9])",
    re.ASCII | re.IGNORECASE,
)
_BEGUN: Final = re.compile("<[a-z]", re.ASCII | re.IGNORECASE)
# What a parser begins again in each block if nobody ends it: few letters become any number of elements. Nothing of
# it is text, and so it becomes a comment, which nests in nothing.
_WITHIN_KINDS: Final = "(?:a|b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u)(?=[ \\t\\r\\n\\f/>])"
_WITHIN: Final = re.compile(
    rf"""<{_WITHIN_KINDS}(?:[^>"']{{1,100}}+|"[^"]{{0,300}}+"|'[^']{{0,300}}+'){{0,8}}+>""", re.IGNORECASE
)
_WITHIN_ELSE: Final = re.compile(f"<(?=/?{_WITHIN_KINDS})", re.IGNORECASE)
_QUOTED: Final = re.compile("=\\s*(?:\"[^\"]*\"|'[^']*')")
# Of a page what no reader reads.
_UNREAD: Final = ["script", "style", "noscript", "template", "svg", "nav", "head"]
_HEADINGS: Final = {f"h{level}": level for level in range(1, 7)}
# With an empty line between them and what stands beside them: paragraphs.
_PARAGRAPHS: Final = frozenset(
    (
        *("address", "article", "aside", "blockquote", "center", "details", "dialog", "div", "dl", "fieldset"),
        *("figure", "footer", "form", "header", "hgroup", "hr", "main", "menu", "ol", "p", "pre", "section"),
        *("table", "ul"),
    )
)
# Each on a line of its own.
_LINES: Final = frozenset(
    (
        *("body", "br", "caption", "dd", "dt", "figcaption", "html", "legend", "li", "optgroup", "option"),
        *("select", "summary", "tbody", "tfoot", "thead", "tr"),
    )
)
_CELLS: Final = frozenset(("td", "th"))
# What stands between an element of this kind and what is beside it; others stand within a line.
_APART: Final = {
    **dict.fromkeys(_CELLS, "\t"),
    **dict.fromkeys(_LINES, "\n"),
    **dict.fromkeys(_PARAGRAPHS, "\n\n"),
}
_BLOCKS: Final = _APART.keys() | _HEADINGS.keys()
# The widest counts.
_WIDTHS: Final = {by: width for width, by in enumerate(("", " ", "\t", "\n", "\n\n"))}
# What is to become one space and is none. As a browser has it: a no-break space is a letter.
_SPACES: Final = re.compile("[\t\n\r\f][ \t\n\r\f]*| [ \t\n\r\f]+")


def read(text: str) -> Content:
    """The text of a page, with its title and headings; `Unread` says why there is none."""
    _check_elements(text)
    text = _WITHIN_ELSE.sub("<!", _WITHIN.sub("<!>", text))
    _check_depth(text)
    page = needed("selectolax.lexbor", "rag").LexborHTMLParser(text)
    title = page.css_first("head > title")
    said = line(title.text()) if title else ""
    page.strip_tags(_UNREAD)
    written = _Written()
    if page.body:
        _walk(page.body, written)
    return Content(written.text(), Outline(title=said, headings=headed(written.headings)))


def _check_elements(text: str) -> None:
    """`Unread`: they would take too much memory."""
    is_large = text.count("<") > ELEMENTS_MAX
    if is_large and next(islice(_BEGUN.finditer(_bare(text)), ELEMENTS_MAX, None), None):
        raise Unread(f"it has more than {ELEMENTS_MAX:,} elements")


def _check_depth(text: str) -> None:
    """`Unread`: they would take a parser too long."""
    if any(depth > DEPTH_MAX for depth in _depths(_bare(text))):
        raise Unread(f"its elements lie more than {DEPTH_MAX:,} deep in each other")


def _bare(text: str) -> str:
    """What stands in an attribute begins and ends nothing."""
    return _QUOTED.sub("=", text)


def _depths(bare: str) -> Iterator[int]:
    """How many elements are open, as they begin and end; without those that a parser ends by itself."""
    depth = 0
    open_now: Counter[str] = Counter()
    for found in _NESTED.finditer(bare):
        end, kind = found[1], found[2].lower()
        # What was not begun does not end.
        if end and not open_now[kind]:
            continue
        step = -1 if end else 1
        open_now[kind] += step
        depth += step
        yield depth


def _walk(body: Any, written: _Written) -> None:
    """All nodes in their order, each element when it begins and when it ends."""
    # Of what is open the next node, and the element's name.
    stack = [(body.child, "body")]
    while stack:
        node, name = stack.pop()
        if node is None:
            if name in _BLOCKS:
                written.end(name)
            continue
        stack.append((node.next, name))
        if node.is_text_node:
            written.put(node.text_content or "")
        elif node.is_element_node:
            tag = node.tag
            if tag in _BLOCKS:
                written.begin(tag)
            stack.append((node.child, tag))


class _Written:
    """Text as it is put together."""

    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self._pieces: list[str] = []
        self._letters = 0
        # What stands between what was written and what comes: nothing, a space, a tab, line ends.
        self._between = ""
        # It follows a heading.
        self._is_headed = False
        self._pre = 0
        # A heading that is open: where its text begins in the pieces.
        self._heading: int | None = None

    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self, name: str) -> None:
        self._apart(name)
        if name == "pre":
            self._pre += 1
        elif name in _HEADINGS:
            self._break("\n\n")
            self._heading = len(self._pieces)

    def end(self, name: str) -> None:
        if name in _HEADINGS:
            self._end_heading(_HEADINGS[name])
        self._apart(name)
        self._pre -= name == "pre"

    def put(self, text: str) -> None:
        if self._pre:
            self._write(text)
            return
        words = _SPACES.sub(" ", text)
        if words.startswith(" "):
            self._break(" ")
        if kept := words.strip(" "):
            self._write(kept)
            if words.endswith(" "):
                self._break(" ")

    def _end_heading(self, level: int) -> None:
        if self._heading is not None and self._heading < len(self._pieces):
            text = "".join(self._pieces[self._heading :])
            said = text.lstrip()
            self.headings.append(Heading(self._letters - len(said), level, line(said)))
            # What it is a heading of comes in the next line.
            self._between, self._is_headed = "\n", True
        self._heading = None

    def _apart(self, name: str) -> None:
        if by := _APART.get(name):
            self._break(by)

    def _break(self, by: str) -> None:
        if not self._is_headed and _WIDTHS[by] > _WIDTHS[self._between]:
            self._between = by

    def _write(self, text: str) -> None:
        if not text:
            return
        if self._between and self._pieces:
            self._pieces.append(self._between)
            self._letters += len(self._between)
        self._pieces.append(text)
        self._letters += len(text)
        self._between, self._is_headed = "", False
