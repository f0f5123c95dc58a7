"""PDF, Word's documents, books and notebooks, as small as can be."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def zipped(files: Mapping[str, str | bytes]) -> bytes:
    """These files in a ZIP."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as into:
        for name, text in files.items():
            into.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    return data.getvalue()


def docx(paragraphs: Sequence[tuple[str, str]], title: str = "") -> bytes:
    """Paragraphs, each with the name of its style; their texts are XML."""
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>'
        for style, text in paragraphs
    )
    document = (
        f'<?xml version="1.0"?><w:document xmlns:w="{_WORD}" xmlns:mc="m"><w:body>{body}</w:body></w:document>'
    )
    about = f'<c:coreProperties xmlns:c="c" xmlns:dc="d"><dc:title>{title}</dc:title></c:coreProperties>'
    return zipped({"word/document.xml": document, "docProps/core.xml": about})


def epub(chapters: Mapping[str, str], title: str = "A book", **more: str) -> bytes:
    """Chapters by their paths below `text`, in their order."""
    items = "".join(
        f'<item id="i{at}" href="text/{name}" media-type="application/xhtml+xml"/>'
        for at, name in enumerate(chapters)
    )
    order = "".join(f'<itemref idref="i{at}"/>' for at in range(len(chapters)))
    package = (
        f'<package><metadata xmlns:dc="d"><dc:title>{title}</dc:title></metadata>'
        f'<manifest><item id="css" href="a.css" media-type="text/css"/>{items}</manifest>'
        f"<spine>{order}</spine></package>"
    )
    container = '<container><rootfiles><rootfile full-path="OPS/a.opf"/></rootfiles></container>'
    pages = {f"OPS/text/{name}": page for name, page in chapters.items()}
    return zipped({"META-INF/container.xml": container, "OPS/a.opf": package, **pages, **more})


def notebook(cells: Sequence[tuple[str, str]]) -> bytes:
    """Cells, each with its kind."""
    said = [
        {"cell_type": kind, "source": text.splitlines(keepends=True), "outputs": ["no"]} for kind, text in cells
    ]
    return json.dumps({"cells": said, "nbformat": 4}).encode()


def pdf(*pages: str, title: str = "") -> bytes:
    """Pages of one line each."""
    kids = " ".join(f"{5 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    for at, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {6 + 2 * at} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    body, places = "%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{each}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    head = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}"
    size = f"/Size {len(objects) + 1} /Root 1 0 R /Info 4 0 R"
    return f"{body}{head}trailer\n<< {size} >>\nstartxref\n{len(body)}\n%%EOF".encode()
