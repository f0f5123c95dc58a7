"""Documents: files of a folder as text, whatever they are written in."""

from __future__ import annotations

import gzip
import io
import logging
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scotfree.rag.trouble import needed
from scotfree.trouble import is_unicode

# A larger file is data, not something to read.
BYTES_MAX: Final = 64 << 20
# What is looked at to tell text from what is none.
_HEAD_BYTES: Final = 8192
_MARKDOWN: Final = (".md", ".markdown", ".mdx")
_HTML: Final = (".html", ".htm", ".xhtml")
_PDF: Final = ".pdf"
_GZIP: Final = ".gz"
# The time to parse grows with the square of how deep elements lie in each other; pages have some dozens.
_DEPTH_MAX: Final = 5_000
_NESTED: Final = re.compile(
    "<(/?)(?:article|aside|blockquote|center|details|div|dl|fieldset|figure|footer|form|header|main|menu|nav|object|"
    "ol|pre|section|span|table|ul)(?![a-z0-9])",
    re.ASCII | re.IGNORECASE,
)
# Of a page what no reader reads.
_UNREAD: Final = ["script", "style", "noscript", "template", "svg", "nav", "head"]


@dataclass(frozen=True)
class Document:
    """A text with a name, and whatever its owner says of it."""

    name: str
    text: str
    # Values are texts or numbers; filters ask for them.
    metadata: dict[str, Any] = field(default_factory=dict)
    is_markdown: bool = False
    # Its text is one passage as it stands: somebody else has split it.
    is_whole: bool = False


class Unread(Exception):
    """Why a file is no document."""

    def __init__(self, reason: str, *, is_unseen: bool = False) -> None:
        """`is_unseen`: it could not be looked at, so that it may be what it was."""
        super().__init__(reason)
        self.is_unseen = is_unseen


def files(folder: Path, unseen: Callable[[Path, OSError], None] = lambda *_: None) -> Iterator[Path]:
    """The files below a folder, a folder's own before those below it, each in the order of names.

    Hidden ones are left out and links to folders not followed; `unseen` is told of folders that cannot be read.
    """
    left = [folder]
    while left:
        at = left.pop()
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
        except OSError as error:
            unseen(at, error)
            continue
        shown = [entry for entry in entries if not entry.name.startswith(".")]
        yield from (Path(entry.path) for entry in shown if not _is_folder(entry))
        left += [Path(entry.path) for entry in reversed(shown) if entry.is_dir(follow_symlinks=False)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to itself.
        return False


def read(path: Path) -> Document:
    """Reads one; `Unread` says why it is no document."""
    if not is_unicode(str(path)):
        raise Unread("its name is no UTF-8")
    try:
        data = _bytes(path)
        kind = path.with_suffix("").suffix.lower() if path.suffix == _GZIP else path.suffix.lower()
        text = _reader(kind)(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unread(f"it cannot be unpacked: {error}") from None
    except FileNotFoundError:
        raise Unread("it is not there") from None
    except OSError as error:
        raise Unread(error.strerror or str(error), is_unseen=True) from None
    if not text.strip():
        raise Unread("it has no text")
    # A PDF may say of its letters that they are halves of one.
    whole = text.encode("utf-8", "replace").decode()
    return Document(str(path), whole, {"suffix": kind}, kind in _MARKDOWN)


def _bytes(path: Path) -> bytes:
    details = path.stat()
    if not stat.S_ISREG(details.st_mode):
        raise Unread("it is no file")
    if details.st_size > BYTES_MAX:
        raise Unread(f"it is larger than {BYTES_MAX >> 20} MiB")
    with path.open("rb") as file:
        data = (gzip.GzipFile(fileobj=file) if path.suffix == _GZIP else file).read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise Unread(f"it is larger than {BYTES_MAX >> 20} MiB when unpacked")
    return data


def _reader(kind: str) -> Callable[[bytes], str]:
    if kind == _PDF:
        return _pdf
    return _html if kind in _HTML else _plain


def _plain(data: bytes) -> str:
    """Text as it stands: UTF-8, or else what every byte is a letter of."""
    if b"\0" in data[:_HEAD_BYTES]:
        raise Unread("it is no text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _html(data: bytes) -> str:
    text = _plain(data)
    if _depth(text) > _DEPTH_MAX:
        raise Unread(f"its elements lie more than {_DEPTH_MAX:,} deep in each other")
    page = needed("selectolax.lexbor", "rag").LexborHTMLParser(text)
    page.strip_tags(_UNREAD)
    body = page.body
    return body.text(separator="\n", strip=True) if body else ""


def _depth(text: str) -> int:
    """How many elements are open at once, at most; without those that a parser ends by itself."""
    open_now = most = 0
    for end in _NESTED.findall(text):
        open_now = max(0, open_now - 1) if end else open_now + 1
        most = max(most, open_now)
    return most


def _pdf(data: bytes) -> str:
    pypdf = needed("pypdf", "rag")
    # It would tell of each fault on standard error, without the file's name.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        return "\n\n".join(page.extract_text() for page in reader.pages)
    except MemoryError:
        raise
    except Exception as error:
        # Of what a file may lack the library does not know all: some of it fails where it is used.
        raise Unread(f"it is no PDF that can be read: {error}") from None
