"""The page's files and its two questions: what the index is, and what is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Final

from scotfree.loopback import Response, Site
from scotfree.rag.page.asking import Asker

_HTML: Final = "text/html; charset=utf-8"
_CSS: Final = "text/css; charset=utf-8"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"


def site(asker: Asker) -> Site:
    """What is answered, by path."""
    pages = {
        "/": _file(_HTML, "page.html"),
        "/page.css": _file(_CSS, "page.css"),
        # Colours, type and tables are those of the study's report.
        "/base.css": _file(_CSS, "assets/page.css", "scotfree.study.report"),
        "/page.js": _file(_SCRIPT, "page.js"),
        "/about": lambda: Response(_JSON, [json.dumps(asker.about()).encode()]),
    }
    return Site(pages, {"/ask": lambda body: _answered(asker, body)})


def _answered(asker: Asker, body: bytes) -> Response:
    lines, hang_up = asker.ask(body)
    return Response(_LINES, lines, hang_up=hang_up)


def _file(kind: str, name: str, package: str = __package__) -> Callable[[], Response]:
    """Read once."""
    data = resources.files(package).joinpath(name).read_bytes()
    return lambda: Response(kind, [data])
