"""Questions of programs, from JSON: what is left out has its default, what is not known is refused."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

from scotfree.loopback import Refused
from scotfree.rag import filters
from scotfree.rag.asking import Question
from scotfree.rag.trouble import RagError

QUESTION_LETTERS_MAX: Final = 2_000
COUNT: Final = 5
COUNT_MAX: Final = 100
_NAMES: Final = ("question", "count", "where", "words")


def read(body: bytes, *, with_model: bool) -> Question:
    """A question; `Refused` says what of it is none."""
    given = _object(body)
    question, count = given.get("question"), given.get("count", COUNT)
    where, words = given.get("where", {}), given.get("words", False)
    if unknown := sorted(given.keys() - set(_NAMES)):
        raise _refused(f"`{unknown[0]}` is not known; there are {', '.join(_NAMES)}")
    if not isinstance(question, str) or not question.strip() or len(question) > QUESTION_LETTERS_MAX:
        raise _refused(f"`question` is a text of 1 to {QUESTION_LETTERS_MAX} letters")
    if type(count) is not int or not 1 <= count <= COUNT_MAX:
        raise _refused(f"`count` is a whole number from 1 to {COUNT_MAX}")
    if not isinstance(words, bool):
        raise _refused("`words` is true or false")
    try:
        filters.read(where)
    except RagError as error:
        raise _refused(f"`where`: {error}") from None
    return Question(question, count, words, where, with_model)


def _object(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
        # Halves of letters, which JSON can name, are none that anybody can search for.
        json.dumps(given, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _refused(f"it is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise _refused("it is no object")
    return given


def _refused(why: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, f"the question cannot be read: {why}")
