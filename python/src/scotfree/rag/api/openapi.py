"""The description of the interface, in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from scotfree import __version__
from scotfree.loopback import BODY_BYTES_MAX
from scotfree.rag import filters
from scotfree.rag.api import asked
from scotfree.rag.copies import PLACES_MAX

SEARCH: Final = "/api/v1/search"
ANSWER: Final = "/api/v1/answer"
STATUS: Final = "/api/v1/status"
DOCUMENT: Final = "/api/v1/openapi.json"

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_SCALARS: Final = {"type": "array", "items": _SCALAR}
_ERRORS: Final = {
    400: "What was posted is no question; of an answer also: there is no language model.",
    401: "The server has a token, and the request does not say it.",
    403: "Another site's page asks.",
    408: "The question did not come whole in time.",
    411: "The length of the question is not said.",
    413: f"The question has more than {BODY_BYTES_MAX} bytes.",
    415: "What was posted is not said to be JSON.",
    421: "The request names another host than this one.",
    431: "The head of the request is too large.",
    500: "A fault of the server's own.",
    503: "Too many ask, and the answer says in Retry-After when to come again; or the index cannot be read.",
}
_ANY_ERRORS: Final = (401, 421, 431, 500, 503)


def document() -> dict[str, Any]:
    """All of it."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Search in your own documents",
            "version": __version__,
            "description": "Finds the passages of an index that are nearest to a question. It changes nothing.",
            "license": {"name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": {
            SEARCH: {"post": _search()},
            ANSWER: {"post": _answer()},
            STATUS: {"get": _get("status", "What the index holds.", "Status")},
            DOCUMENT: {"get": _get("description", "This description.", "Description")},
        },
        "components": {
            "schemas": _schemas(),
            "responses": {f"E{code}": _error(why) for code, why in _ERRORS.items()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _search() -> dict[str, Any]:
    return _asked("search", "The passages nearest to a question.") | {
        "responses": {"200": _said("What was found, the best first.", _of("Found"))} | _errors(*_ERRORS)
    }


def _answer() -> dict[str, Any]:
    about = "What a language model answers from the passages nearest to a question, as it comes."
    said = (
        "Lines, each an object of JSON: first what was `found`, then pieces of `text` as they come, at the end "
        "`done`, or an `error` that broke it off."
    )
    lines = {"application/x-ndjson": {"schema": _of("Line")}}
    return _asked("answer", about) | {
        "responses": {"200": {"description": said, "content": lines}} | _errors(*_ERRORS)
    }


def _asked(name: str, about: str) -> dict[str, Any]:
    body = {"required": True, "content": {"application/json": {"schema": _of("Question")}}}
    return {"operationId": name, "summary": about, "requestBody": body}


def _get(name: str, about: str, schema: str) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": about,
        "responses": {"200": _said(about, _of(schema))} | _errors(*_ANY_ERRORS),
    }


def _errors(*codes: int) -> dict[str, Any]:
    return {str(code): {"$ref": f"#/components/responses/E{code}"} for code in codes}


def _error(why: str) -> dict[str, Any]:
    return _said(why, _of("Error"))


def _said(about: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {"application/json": {"schema": schema}}}


def _of(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: dict[str, Any], required: tuple[str, ...] | None = None) -> dict[str, Any]:
    """With these members and no other; all of them unless some are named."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties if required is None else required),
        "additionalProperties": False,
    }


def _schemas() -> dict[str, Any]:
    counts = dict.fromkeys(("estimated", "cached", "loaded", "regenerated"), _COUNT)
    found = {"question": _TEXT, "hits": {"type": "array", "items": _of("Hit")}}
    stages = {"type": "object", "additionalProperties": _COUNT, "description": "Of each stage its time, in ns."}
    hit = {
        "document": _TEXT,
        "location": _of("Location"),
        "text": _TEXT,
        "similarity": {"type": "number", "description": "The inner product of the embeddings."},
        "score": {
            "type": "number",
            "description": "A cross-encoder's, if one puts them in order: more is better.",
        },
        "metadata": {"type": "object", "description": "What is known of the document."},
        "copies": {
            "type": "array",
            "description": f"Where else the same passage stands: {PLACES_MAX} places at most.",
            "items": _object({"document": _TEXT, "location": _of("Location")}),
        },
    }
    done = {"stages_ns": stages, "written": {"type": ["object", "null"]}}
    return {
        "Question": _question(),
        "Filter": _filter(),
        "Compared": _compared(),
        "Found": _object(found | {"stages_ns": stages} | counts),
        "Hit": _object(hit, tuple(name for name in hit if name != "score")),
        "Location": {
            "type": "object",
            "properties": {
                "letter": _COUNT | {"description": "At which the passage begins, of the document."},
                "place": _TEXT | {"description": "As `line 12`, `page 3` or `cell 2`, where it is known."},
                "section": _TEXT | {"description": "The headings above it, as `Logs > Rotation`."},
            },
            "required": ["letter"],
        },
        "Line": {
            "oneOf": [
                _object({"found": _of("Found")}),
                _object({"text": _TEXT}),
                _object({"done": _object(done)}),
                _object({"error": _TEXT}),
            ]
        },
        "Status": _object(
            {
                "documents": _COUNT,
                "passages": _COUNT,
                "embedder": _TEXT,
                "metadata": {
                    "type": "object",
                    "description": "Keys that documents have, and of each its most frequent values.",
                    "additionalProperties": _SCALARS,
                },
                "model": {"type": ["string", "null"], "description": "The language model that answers, if any."},
            }
        ),
        "Description": {"type": "object", "required": ["openapi", "info", "paths"]},
        "Error": _object({"error": _TEXT}),
    }


def _question() -> dict[str, Any]:
    return _object(
        {
            "question": _TEXT | {"minLength": 1, "maxLength": asked.QUESTION_LETTERS_MAX, "pattern": r"\S"},
            "count": {"type": "integer", "minimum": 1, "maximum": asked.COUNT_MAX, "default": asked.COUNT},
            "where": _of("Filter") | {"default": {}},
            "words": {
                "type": "boolean",
                "default": False,
                "description": "Whether to look also for the question's words, not only its meaning.",
            },
        },
        ("question",),
    )


def _filter() -> dict[str, Any]:
    parts = {"type": "array", "items": _of("Filter"), "minItems": 1}
    return {
        "type": "object",
        "description": (
            "What the metadata of a document are to be: of each key a value, one of several, or operators. "
            f"At most {filters.DEPTH_MAX} within each other, and {filters.TERMS_MAX} conditions."
        ),
        "properties": {"$and": parts, "$or": parts, "$not": _of("Filter")},
        "patternProperties": {"^(?!\\$)": {"anyOf": [_SCALAR, _SCALARS, _of("Compared")]}},
        "additionalProperties": False,
    }


def _compared() -> dict[str, Any]:
    single = dict.fromkeys(("$eq", "$ne", "$gt", "$gte", "$lt", "$lte"), _SCALAR)
    several = dict.fromkeys(("$in", "$nin"), _SCALARS)
    others = {"$exists": {"type": "boolean"}, "$not": _of("Compared")}
    return _object(single | several | others, ()) | {
        "minProperties": 1,
        "description": (
            "Of a list one of its values counts. `$ne`, `$nin` and `$not` are true also where a key is missing."
        ),
    }
