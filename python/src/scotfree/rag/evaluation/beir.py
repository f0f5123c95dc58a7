"""Collections in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/test.tsv, also gzipped.

A collection without judgements is one, too: its answers are compared with those of exact search alone.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from scotfree.rag.documents import Document
from scotfree.rag.outline import Outline
from scotfree.rag.outline import line as one_line
from scotfree.rag.trouble import RagError
from scotfree.trouble import is_unicode

_CORPUS: Final = "corpus.jsonl"
_QUESTIONS: Final = "queries.jsonl"
_JUDGEMENTS: Final = "qrels/test.tsv"
# Grades are few; the library that measures takes no more than whole numbers of the machine.
_GRADE_MAX: Final = 1_000_000
_HEADER: Final = ("query-id", "corpus-id", "score")
_LAYOUT: Final = "name a folder in BEIR's layout: corpus.jsonl, queries.jsonl and, of judged ones, qrels/test.tsv"
_CORRECT: Final = "correct that line"


@dataclass(frozen=True)
class Collection:
    """Documents, questions by their names, and of each judged question how relevant documents are to it."""

    documents: list[Document]
    questions: dict[str, str]
    judgements: dict[str, dict[str, int]] = field(default_factory=dict)

    def first(self, count: int) -> Collection:
        """The same with its first questions only."""
        kept = dict(list(self.questions.items())[:count])
        judged = {name: of for name, of in self.judgements.items() if name in kept}
        return replace(self, questions=kept, judgements=judged)


def read(folder: Path) -> Collection:
    """Reads one; of a judged one, the judged questions. A `RagError` names file and line of what is wrong."""
    documents = [_document(name, row) for name, row in _rows(_there(folder, _CORPUS)).items()]
    questions = {name: row["text"] for name, row in _rows(_there(folder, _QUESTIONS)).items()}
    path = _either(folder, _JUDGEMENTS)
    judgements = _judgements(path, questions) if path else {}
    asked = {name: text for name, text in questions.items() if name in judgements} if path else questions
    if not documents or not asked:
        what = "document" if not documents else "question that is judged" if path else "question"
        raise RagError(f"evaluate {folder}: it has no {what}", _LAYOUT)
    return Collection(documents, asked, judgements)


def _document(name: str, row: dict[str, Any]) -> Document:
    """As of a file: its title stands above each of its passages. One that is only a title is that."""
    title, text = one_line(row.get("title") or ""), row["text"].strip()
    return Document(name, text, outline=Outline(title=title)) if text else Document(name, title)


def _there(folder: Path, name: str) -> Path:
    found = _either(folder, name)
    if found is None:
        raise RagError(f"evaluate {folder}: there is no {name} in it", _LAYOUT)
    return found


def _either(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    """JSON objects by their `_id`, in the order of lines."""
    found: dict[str, dict[str, Any]] = {}
    for number, line in _lines(path):
        if not line.strip():
            continue
        row = _row(path, number, line)
        if row["_id"] in found:
            raise _wrong(path, number, f"the _id {row['_id']} is there already")
        found[row["_id"]] = row
    return found


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in ("_id", "text")):
        raise _wrong(path, number, "it is no JSON object whose _id and text are texts")
    if not isinstance(row.get("title") or "", str):
        raise _wrong(path, number, "its title is no text")
    if not is_unicode(row["_id"], row["text"], row.get("title") or ""):
        raise _wrong(path, number, "half of a pair of surrogates stands in it alone")
    return row


def _judgements(path: Path, questions: dict[str, str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        words = tuple(line.rstrip("\r\n").split("\t"))
        if not line.strip() or (number == 1 and words == _HEADER):
            continue
        question, document, grade = _judgement(path, number, words)
        if question not in questions:
            raise _wrong(path, number, f"no question {question} is in {_QUESTIONS}")
        of = found.setdefault(question, {})
        if of.setdefault(document, grade) != grade:
            raise _wrong(path, number, f"question {question} and document {document} were judged otherwise before")
    return found


def _judgement(path: Path, number: int, words: tuple[str, ...]) -> tuple[str, str, int]:
    try:
        question, document, grade = words
        if abs(int(grade)) > _GRADE_MAX:
            raise ValueError
        return question, document, int(grade)
    except ValueError:
        said = f"it is no question, document and whole number up to {_GRADE_MAX:,} with tabs between"
        raise _wrong(path, number, said) from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines with their numbers, from 1."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except UnicodeDecodeError:
        raise _wrong(path, number, "it is no UTF-8") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise RagError(f"read {path}, after line {number}: {error}", "put the whole file there") from None


def _wrong(path: Path, number: int, what: str) -> RagError:
    return RagError(f"read {path}, line {number}: {what}", _CORRECT)
