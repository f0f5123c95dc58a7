"""What programs are answered, by path: a search, an answer in words as it comes, the state, the description."""

from __future__ import annotations

import json
import os
from http import HTTPStatus
from typing import Any, Final

from scotfree.loopback import Question, Refused, Response, Site
from scotfree.rag.api import asked, openapi
from scotfree.rag.asking import Asker, lines
from scotfree.rag.told import found
from scotfree.turns import Turns

# Searches at once: each takes a processor, or all of them for a while. Those that wait, each so long at most.
SEARCHES_MAX: Final = min(8, len(os.sched_getaffinity(0)))
WAITING_MAX: Final = 64
PATIENCE_S: Final = 10.0
_JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"


def site(asker: Asker, answering: Turns, searching: Turns | None = None) -> Site:
    """The interface; what a language model answers takes its turn among `answering`."""
    turns = searching or Turns(SEARCHES_MAX, WAITING_MAX, PATIENCE_S)

    def status() -> Response:
        with turns.taken():
            return _json(asker.status())

    def search(body: bytes) -> Response:
        question = asked.read(body, with_model=False)
        return _json(found(question.text, asker.search(question)))

    def answer(body: bytes) -> Response:
        return _answered(asker, body)

    pages = {openapi.STATUS: status, openapi.DOCUMENT: lambda: _json(openapi.document())}
    return Site(pages, {openapi.SEARCH: Question(search, turns), openapi.ANSWER: Question(answer, answering)})


def _answered(asker: Asker, body: bytes) -> Response:
    if not asker.has_model:
        raise Refused(HTTPStatus.BAD_REQUEST, "there is no language model; start with --llm or --gguf")
    said, hang_up = asker.ask(asked.read(body, with_model=True))
    return Response(LINES, lines(said), hang_up=hang_up)


def _json(value: dict[str, Any]) -> Response:
    return Response(_JSON, [json.dumps(value).encode()])
