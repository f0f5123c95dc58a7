"""The page's files and its two questions: what the index is, and what is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Final

from scotfree.loopback import ASKED_MAX, Question, Response, Site
from scotfree.rag.api import site as api
from scotfree.rag.api.site import LINES
from scotfree.rag.asking import Asker, lines
from scotfree.rag.page.asking import read
from scotfree.turns import Turns

_HTML: Final = "text/html; charset=utf-8"
_CSS: Final = "text/css; charset=utf-8"
_SCRIPT: Final = "text/javascript; charset=utf-8"
_JSON: Final = "application/json"


def site(asker: Asker, searching: Turns | None = None) -> Site:
    """What is answered, by path: the page, and what programs ask."""
    turns = Turns(ASKED_MAX)
    programs = api.site(asker, turns, searching)
    pages = {
        "/": _file(_HTML, "page.html"),
        "/page.css": _file(_CSS, "page.css"),
        # Colours, type and tables are those of the study's report.
        "/base.css": _file(_CSS, "assets/page.css", "scotfree.study.report"),
        "/page.js": _file(_SCRIPT, "page.js"),
        "/about": lambda: Response(_JSON, [json.dumps(asker.about()).encode()]),
    }
    files = frozenset(path for path in pages if path != "/about")
    questions = {"/ask": Question(lambda body: _answered(asker, body), turns)}
    return Site({**pages, **programs.pages}, {**questions, **programs.questions}, files)


def _answered(asker: Asker, body: bytes) -> Response:
    said, hang_up = asker.ask(read(body, asker.has_model))
    return Response(LINES, lines(said), hang_up=hang_up)


def _file(kind: str, name: str, package: str = __package__) -> Callable[[], Response]:
    """Read once."""
    data = resources.files(package).joinpath(name).read_bytes()
    return lambda: Response(kind, [data])
