"""Documents: files of a folder as text, whatever they are written in."""

from __future__ import annotations

import gzip
import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scotfree.rag.trouble import needed

# A larger file is data, not something to read.
BYTES_MAX: Final = 64 << 20
# What is looked at to tell text from what is none.
_HEAD_BYTES: Final = 8192
_MARKDOWN: Final = (".md", ".markdown", ".mdx")
_HTML: Final = (".html", ".htm", ".xhtml")
_PDF: Final = ".pdf"
_GZIP: Final = ".gz"
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


def files(folder: Path) -> Iterator[Path]:
    """The files below a folder in the order of their names; hidden ones and links to folders are not followed."""
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(root) / name for name in sorted(names) if not name.startswith("."))


def read(path: Path) -> Document:
    """Reads one; `Unread` says why it is no document."""
    try:
        data = _bytes(path)
        kind = path.with_suffix("").suffix.lower() if path.suffix == _GZIP else path.suffix.lower()
        text = _reader(kind)(data)
    except (OSError, EOFError, zlib.error) as error:
        raise Unread(str(error)) from None
    if not text.strip():
        raise Unread("it has no text")
    return Document(str(path), text, {"suffix": kind}, kind in _MARKDOWN)


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
    page = needed("selectolax.lexbor", "rag").LexborHTMLParser(_plain(data))
    page.strip_tags(_UNREAD)
    body = page.body
    return body.text(separator="\n", strip=True) if body else ""


def _pdf(data: bytes) -> str:
    pypdf = needed("pypdf", "rag")
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        return "\n\n".join(page.extract_text() for page in reader.pages)
    except (pypdf.errors.PyPdfError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unread(f"it is no PDF that can be read: {error}") from None
