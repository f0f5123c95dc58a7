"""Jupyter's notebooks (.ipynb): their cells, text and code; what code put out is left out."""

from __future__ import annotations

import json
from typing import Any, Final

from scotfree.rag.formats import plain
from scotfree.rag.formats.content import Content, Unread
from scotfree.rag.outline import Heading, Outline, headed

_BREAK: Final = "\n\n"


def read(text: str) -> Content:
    """The text with where cells begin; `Unread` says why there is none."""
    texts: list[str] = []
    starts: list[int] = []
    headings: list[Heading] = []
    written = 0
    for kind, source in _cells(text):
        starts.append(written)
        if kind == "markdown":
            headings += [Heading(written + one.start, one.level, one.text) for one in plain.headings(source)]
        texts.append(source)
        written += len(source) + len(_BREAK)
    return Content(_BREAK.join(texts), Outline("cell", tuple(starts), headings=headed(headings), is_divided=True))


def _cells(text: str) -> list[tuple[str, str]]:
    """Of each its kind and what stands in it."""
    try:
        said = json.loads(text)
        cells = (
            said["cells"] if "cells" in said else [cell for sheet in said["worksheets"] for cell in sheet["cells"]]
        )
        return [(str(cell["cell_type"]), _source(cell)) for cell in cells]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise Unread(f"it is no notebook: {type(error).__name__} {error}") from None


def _source(cell: Any) -> str:
    # Until version 3 code was an input.
    source = cell.get("source", cell.get("input", ""))
    return source if isinstance(source, str) else "".join(source)
