"""Documents: files of a folder as text, whatever they are written in."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scotfree.rag.formats import book, html, notebook, pdf, plain, word
from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.outline import NONE, Outline
from scotfree.trouble import is_unicode

__all__ = ["BYTES_MAX", "Document", "Unread", "files", "read"]

# A larger file is data, not something to read.
BYTES_MAX: Final = 64 << 20
_GZIP: Final = ".gz"
_MARKDOWN: Final = (".md", ".markdown", ".mdx")
# By the ends of files' names; what has another is text, if it is.
_READERS: Final[dict[str, Callable[[bytes], Content]]] = {
    **dict.fromkeys((".html", ".htm", ".xhtml"), lambda data: html.read(plain.decoded(data))),
    **dict.fromkeys(_MARKDOWN, lambda data: plain.markdown(plain.decoded(data))),
    ".pdf": pdf.read,
    ".docx": lambda data: word.read(data, BYTES_MAX),
    ".epub": lambda data: book.read(data, BYTES_MAX),
    ".ipynb": lambda data: notebook.read(plain.decoded(data)),
}


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
    # Its title and headings, and what its places are counted in.
    outline: Outline = NONE
    # The letter at which its passages begin: what stands before is in its metadata.
    begin: int = 0


def files(
    folder: Path,
    unseen: Callable[[Path, OSError], None] = lambda *_: None,
    takes: Callable[..., bool] = lambda path, **_: not path.name.startswith("."),
    linked: Callable[[Path], object] = lambda _: None,
) -> Iterator[Path]:
    """The files below a folder, a folder's own before those below it, each in the order of names.

    Those that `takes` says (of a folder with `is_folder=True`): not hidden ones, unless it does. Links to folders
    are not followed: `linked` is told of those; `unseen` is told of folders that cannot be read.
    """
    left = [folder]
    while left:
        at = left.pop()
        try:
            entries = sorted(os.scandir(at), key=lambda entry: entry.name)
            inside = [Path(entry.path) for entry in entries if not _is_folder(entry)]
            below = [entry for entry in reversed(entries) if _is_folder(entry)]
            found = [path for path in inside if takes(path)]
            taken = [entry for entry in below if takes(Path(entry.path), is_folder=True)]
        except OSError as error:
            unseen(at, error)
            continue
        yield from found
        left += [Path(entry.path) for entry in taken if not entry.is_symlink()]
        for entry in reversed(taken):
            if entry.is_symlink():
                linked(Path(entry.path))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        # A link to itself.
        return False


def read(path: Path | str, doubt: Callable[[str], object] = lambda _: None) -> Document:
    """Reads one; `Unread` says why it is no document, and `doubt` is told why its front matter is text."""
    path = Path(path)
    if not is_unicode(str(path)):
        raise Unread("its name is no UTF-8")
    try:
        data = _bytes(path)
        # Of `notes.txt.gz` that of what is packed.
        kind = (path.with_suffix("") if _is_gzip(path) else path).suffix.lower()
        content = _READERS.get(kind, _plain)(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise Unread(f"it cannot be unpacked: {error}") from None
    except FileNotFoundError:
        raise Unread("it is not there") from None
    except OSError as error:
        raise Unread(error.strerror or str(error), is_unseen=True) from None
    if not content.text.strip():
        raise Unread("it has no text")
    if content.doubt:
        doubt(content.doubt)
    return Document(
        str(path),
        _whole(content.text),
        # Whatever it says of itself.
        content.metadata | {"suffix": kind},
        kind in _MARKDOWN,
        outline=content.outline.mapped(_whole),
        begin=content.begin,
    )


def _plain(data: bytes) -> Content:
    return plain.read(plain.decoded(data))


def _whole(text: str) -> str:
    """A PDF may say of its letters that they are halves of one."""
    return text.encode("utf-8", "replace").decode()


def _is_gzip(path: Path) -> bool:
    return path.suffix.lower() == _GZIP


def _bytes(path: Path) -> bytes:
    details = path.stat()
    if not stat.S_ISREG(details.st_mode):
        raise Unread("it is no file")
    if details.st_size > BYTES_MAX:
        raise Unread(f"it is larger than {BYTES_MAX >> 20} MiB")
    with path.open("rb") as file:
        data = (gzip.GzipFile(fileobj=file) if _is_gzip(path) else file).read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise Unread(f"it is larger than {BYTES_MAX >> 20} MiB when unpacked")
    return data
