"""Who asks an index: the page, programs and tools, several at once, while other processes change it.

An answer with a language model comes line by line: the first has what was `found`, then come pieces of its `text`;
the last is `done`, with all stages, or an `error`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Final

from scotfree.rag import trouble
from scotfree.rag.generate.answering import write_answer
from scotfree.rag.generate.model import HangUp, LanguageModel
from scotfree.rag.generate.prompt import LETTERS_MAX
from scotfree.rag.index import Index, is_index
from scotfree.rag.passages import Text
from scotfree.rag.rerank.ranked import Reranking
from scotfree.rag.searching import Answer
from scotfree.rag.told import found
from scotfree.rag.trouble import RagError

# Of what documents are said to be, what is told: keys, and of each its most frequent values.
KEYS_MAX: Final = 6
VALUES_MAX: Final = 100
# Programs are told of all keys, unless somebody has as many as documents.
ALL_KEYS_MAX: Final = 200


@dataclass(frozen=True)
class Question:
    """What is asked."""

    text: str
    count: int
    with_words: bool
    where: Mapping[str, Any]
    with_model: bool


class Asker:
    """An index, and perhaps a language model, that are asked by several at once."""

    def __init__(
        self,
        index: Index,
        model: LanguageModel | None = None,
        letters_max: int = LETTERS_MAX,
        ranking: Reranking | None = None,
    ) -> None:
        """`ranking` puts in order what is found, if it is there."""
        self._index, self._model, self._letters_max = index, model, letters_max
        self._ranking = ranking
        # Those that were put in the place of the first, each in that of the one before.
        self._later: list[Index] = []
        self._state = threading.Condition()
        self._users = 0
        self._is_ended = False

    def close(self) -> None:
        """Waits for searches that run; no other begins."""
        with self._state:
            self._is_ended = True
            self._state.wait_for(lambda: not self._users)
            for index in self._later:
                index.close()

    @property
    def has_model(self) -> bool:
        """Whether a language model can answer."""
        return self._model is not None

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

    def status(self) -> dict[str, Any]:
        """What programs are told of the index and the model."""
        with self._using() as index:
            return {
                "documents": len(index.documents()),
                "passages": len(index),
                "embedder": index.embedder.name,
                "metadata": index.metadata(ALL_KEYS_MAX, VALUES_MAX),
                "model": self._model.name if self._model else None,
            }

    def search(self, question: Question) -> Answer:
        """What is found; a `RagError` says what is wrong with the index."""
        ranking = self._ranking
        with self._using() as index:
            answer = index.search(
                question.text,
                ranking.wanted(question.count) if ranking else question.count,
                where=question.where,
                with_words=question.with_words,
                is_distinct=True,
            )
            if ranking:
                ranking.apply(question.text, answer, question.count)
            return answer

    def read(self, name: str) -> list[Text]:
        """The passages of a document in their order; none, if there is no such document."""
        with self._using() as index:
            return index.texts([name])

    def ask(self, question: Question) -> tuple[Iterator[tuple[str, Any]], HangUp]:
        """The lines of an answer, and what ends them; what is wrong before the first of them is raised.

        Of a line its kind and what it says.
        """
        answer = self.search(question)
        hang_up = HangUp()
        return self._lines(question, answer, hang_up), hang_up

    def _lines(self, question: Question, answer: Answer, hang_up: HangUp) -> Iterator[tuple[str, Any]]:
        yield "found", found(question.text, answer)
        if question.with_model and self._model and answer.hits:
            pieces = write_answer(
                self._model, question.text, answer, letters_max=self._letters_max, hang_up=hang_up
            )
            try:
                for piece in pieces:
                    yield "text", piece
            except RagError as error:
                yield "error", str(error)
                return
        yield "done", {"stages_ns": answer.stages_ns, "written": answer.written and asdict(answer.written)}

    @contextmanager
    def _using(self) -> Iterator[Index]:
        """The index as it is now; what is wrong with it is a `RagError`."""
        with self._state:
            if self._is_ended:
                raise RagError("ask the index: the server is being ended", "start it again")
            self._users += 1
        try:
            index = self._in_place()
            index.refresh()
            yield index
        except Exception as error:
            if refused := trouble.told(error):
                raise refused from None
            raise
        finally:
            with self._state:
                self._users -= 1
                self._state.notify_all()

    def _in_place(self) -> Index:
        """The index that lies in the folder now, which another may have been put in the place of."""
        with self._state:
            if not self._index.is_in_place:
                folder = self._index.folder
                if not is_index(folder):
                    raise RagError(
                        f"ask the index {folder}: it is not there any more", "make it anew, or put it back"
                    )
                self._index = Index(folder, self._index.embedder)
                self._later.append(self._index)
            return self._index


def lines(said: Iterator[tuple[str, Any]]) -> Iterator[bytes]:
    """An answer's lines as JSON."""
    for kind, value in said:
        yield json.dumps({kind: value}).encode() + b"\n"
