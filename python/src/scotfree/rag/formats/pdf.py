"""PDF: the text of its pages."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.outline import Outline, line
from scotfree.rag.trouble import needed

# Between pages.
_BREAK: Final = "\n\n"


def read(data: bytes) -> Content:
    """Its text with where pages begin; `Unread` says why there is none."""
    pypdf = needed("pypdf", "rag")
    # It would tell of each fault on standard error, without the file's name.
    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        pages = [page.extract_text() for page in reader.pages]
        said = reader.metadata and reader.metadata.title
    except MemoryError:
        raise
    except Exception as error:
        # Of what a file may lack the library does not know all: some of it fails where it is used.
        raise Unread(f"it is no PDF that can be read: {error}") from None
    return joined(pages, "page", title=_title(said, pages))


def joined(parts: Iterable[str], unit: str, *, title: str = "") -> Content:
    """Pages, or what else is numbered, as one text."""
    texts = list(parts)
    starts = accumulate((len(text) + len(_BREAK) for text in texts), initial=0)
    return Content(_BREAK.join(texts), Outline(unit, tuple(starts)[: len(texts)], title))


def _title(said: object, pages: list[str]) -> str:
    """What programs write there is often no title: it is one that the first page shows."""
    title = line(said) if isinstance(said, str) else ""
    shown = " ".join(pages[0].split()).casefold() if pages else ""
    return title if title and title.casefold() in shown else ""
