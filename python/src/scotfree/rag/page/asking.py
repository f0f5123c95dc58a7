"""Questions of the page, from JSON, each checked."""

from __future__ import annotations

import json
import re
from http import HTTPStatus
from typing import Any, Final

from scotfree.loopback import Refused
from scotfree.rag.asking import KEYS_MAX, Question

QUESTION_LETTERS_MAX: Final = 2_000
COUNT_MAX: Final = 50
_NUMBER_MAX: Final = 2**63
_KEY: Final = re.compile(r'[^"\x00-\x1f]{1,200}')


def read(body: bytes, has_model: bool) -> Question:
    """A question from JSON; `Refused` says what of it is none."""
    try:
        given = json.loads(body)
        # Halves of letters, which JSON can name, are none that anybody can search for.
        json.dumps(given, ensure_ascii=False).encode()
        names = {"question", "count", "words", "where", "model"}
        if not isinstance(given, dict) or given.keys() != names:
            raise ValueError(f"it is no object with {', '.join(sorted(names))}")
        question = Question(
            _text(given["question"]),
            _count(given["count"]),
            _choice(given["words"], "words"),
            _where(given["where"]),
            _choice(given["model"], "model"),
        )
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the question cannot be read: {error}") from None
    if question.with_model and not has_model:
        raise Refused(HTTPStatus.BAD_REQUEST, "there is no language model; start with --llm or --gguf")
    return question


def _text(given: Any) -> str:
    if not isinstance(given, str) or not given.strip() or len(given) > QUESTION_LETTERS_MAX:
        raise ValueError(f"`question` has 1 to {QUESTION_LETTERS_MAX} letters")
    return given


def _count(given: Any) -> int:
    if type(given) is not int or not 1 <= given <= COUNT_MAX:
        raise ValueError(f"`count` is a whole number from 1 to {COUNT_MAX}")
    return given


def _choice(given: Any, name: str) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"`{name}` is true or false")
    return given


def _where(given: Any) -> dict[str, str | int | float]:
    if not isinstance(given, dict) or len(given) > KEYS_MAX:
        raise ValueError(f"`where` has at most {KEYS_MAX} keys, each with its value")
    for key, value in given.items():
        if not _KEY.fullmatch(key) or not isinstance(value, str | int | float):
            raise ValueError("a key of `where` is a name, and its value a text or a number")
        if not isinstance(value, str) and not abs(value) < _NUMBER_MAX:
            raise ValueError("a number of `where` has at most 63 bits")
    return given
