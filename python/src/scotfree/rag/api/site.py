"""What programs are answered, by path: a search, an answer in words as it comes, the state, the description."""

from __future__ import annotations

import json
from typing import Any, Final

from scotfree.loopback import Question, Response, Site
from scotfree.rag.api import asked, openapi
from scotfree.rag.index import Answer, Hit
from scotfree.rag.page.asking import Asker, lines
from scotfree.turns import Turns

# Searches at once, which share all processors; those that wait, each so long at most.
SEARCHES_MAX: Final = 4
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
        return _json(found(asker.search(asked.read(body, with_model=False))))

    def answer(body: bytes) -> Response:
        return _answered(asker, body)

    pages = {openapi.STATUS: status, openapi.DOCUMENT: lambda: _json(openapi.document())}
    return Site(pages, {openapi.SEARCH: Question(search, turns), openapi.ANSWER: Question(answer, answering)})


def found(answer: Answer) -> dict[str, Any]:
    """What a search found, and what it took."""
    return {
        "hits": [_hit(hit) for hit in answer.hits],
        "stages_ns": dict(answer.stages_ns),
        "estimated": answer.estimated,
        "cached": answer.cached,
        "loaded": answer.loaded,
        "regenerated": answer.regenerated,
    }


def _hit(hit: Hit) -> dict[str, Any]:
    return {
        "document": hit.document,
        "location": {"letter": hit.start},
        "text": hit.text,
        "similarity": hit.similarity,
        # What a library keeps for itself tells nobody anything.
        "metadata": {key: value for key, value in hit.metadata.items() if not key.startswith("_")},
    }


def _answered(asker: Asker, body: bytes) -> Response:
    said, hang_up = asker.ask(asked.read(body, with_model=True))
    return Response(LINES, lines(said, found), hang_up=hang_up)


def _json(value: dict[str, Any]) -> Response:
    return Response(_JSON, [json.dumps(value).encode()])
