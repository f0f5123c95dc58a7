"""Questions of the page: each is checked, searched for, and answered line by line, each line an object of JSON.

The first line has what was `found`; if a language model answers, lines of its `text` as it comes; the last is
`done`, with all stages, or an `error`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Any, Final

from scotfree.loopback import Refused
from scotfree.rag import trouble
from scotfree.rag.generate.answering import write_answer
from scotfree.rag.generate.model import HangUp, LanguageModel
from scotfree.rag.generate.prompt import LETTERS_MAX
from scotfree.rag.index import Index
from scotfree.rag.searching import Answer
from scotfree.rag.trouble import RagError

QUESTION_LETTERS_MAX: Final = 2_000
COUNT_MAX: Final = 50
# Of what documents are said to be, what the page offers to choose from.
KEYS_MAX: Final = 6
VALUES_MAX: Final = 100
_NUMBER_MAX: Final = 2**63
_KEY: Final = re.compile(r'[^"\x00-\x1f]{1,200}')


@dataclass(frozen=True)
class Question:
    """What the page asks."""

    text: str
    count: int
    with_words: bool
    where: dict[str, str | int | float]
    with_model: bool


def read(body: bytes) -> Question:
    """A question from JSON; `Refused` says what of it is none."""
    try:
        given = json.loads(body)
        # Halves of letters, which JSON can name, are none that anybody can search for.
        json.dumps(given, ensure_ascii=False).encode()
        names = {"question", "count", "words", "where", "model"}
        if not isinstance(given, dict) or given.keys() != names:
            raise ValueError(f"it is no object with {', '.join(sorted(names))}")
        return Question(
            _text(given["question"]),
            _count(given["count"]),
            _choice(given["words"], "words"),
            _where(given["where"]),
            _choice(given["model"], "model"),
        )
    except (ValueError, RecursionError) as error:
        raise Refused(HTTPStatus.BAD_REQUEST, f"the question cannot be read: {error}") from None


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


class Asker:
    """An index, and perhaps a language model, that are asked one search at a time."""

    def __init__(self, index: Index, model: LanguageModel | None = None, letters_max: int = LETTERS_MAX) -> None:
        self._index, self._model, self._letters_max = index, model, letters_max
        # A search takes all of the processor anyway; and none may run while the index is looked at anew.
        self._searching = threading.Lock()
        self._is_ended = False

    def close(self) -> None:
        """Waits for a search that runs; no other begins."""
        with self._searching:
            self._is_ended = True

    def about(self) -> dict[str, Any]:
        """What the page says of the index and the model, and what it lets choose from."""
        model = self._model and {"name": self._model.name, "place": self._model.place}
        with self._using() as index:
            return {
                "folder": str(index.folder),
                "documents": len(index.documents()),
                "passages": len(index),
                "metadata": index.metadata(KEYS_MAX, VALUES_MAX),
                "model": model,
            }

    def ask(self, body: bytes) -> tuple[Iterator[bytes], HangUp]:
        """The lines of an answer, and what ends them; what is wrong before the first of them is raised."""
        question = read(body)
        if question.with_model and not self._model:
            raise Refused(HTTPStatus.BAD_REQUEST, "there is no language model; start with --llm or --gguf")
        with self._using() as index:
            answer = index.search(
                question.text, question.count, where=question.where, with_words=question.with_words
            )
        hang_up = HangUp()
        return self._lines(question, answer, hang_up), hang_up

    def _lines(self, question: Question, answer: Answer, hang_up: HangUp) -> Iterator[bytes]:
        yield _line("found", asdict(answer))
        if question.with_model and self._model and answer.hits:
            pieces = write_answer(
                self._model, question.text, answer, letters_max=self._letters_max, hang_up=hang_up
            )
            try:
                for piece in pieces:
                    yield _line("text", piece)
            except RagError as error:
                yield _line("error", str(error))
                return
        yield _line("done", {"stages_ns": answer.stages_ns, "written": answer.written and asdict(answer.written)})

    @contextmanager
    def _using(self) -> Iterator[Index]:
        """The index as it is now, used by nobody else; what is wrong with it is a `RagError`."""
        with self._searching:
            if self._is_ended:
                raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "the server is being ended")
            try:
                self._index.refresh()
                yield self._index
            except Exception as error:
                if refused := trouble.told(error):
                    raise refused from None
                raise


def _line(kind: str, value: Any) -> bytes:
    return json.dumps({kind: value}).encode() + b"\n"
