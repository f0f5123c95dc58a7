"""`scot rag ask`: the passages nearest to a question, where they stand, and what it took to find them.

With a language model also its answer from them, as it comes, and their numbers as its sources.
"""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from scotfree.numbers import whole
from scotfree.rag import told
from scotfree.rag.commands import modelling, opening, reranking
from scotfree.rag.copies import Place
from scotfree.rag.generate.answering import write_answer
from scotfree.rag.generate.model import LanguageModel
from scotfree.rag.index import Index
from scotfree.rag.outline import LINE
from scotfree.rag.rerank.ranked import Ranked
from scotfree.rag.searching import Answer, Hit
from scotfree.rag.trouble import RagError
from scotfree.trouble import is_unicode, printable

HELP = "find the passages nearest to a question, and let a language model answer from them"
EXAMPLES = """\
  scot rag ask "how do I rotate logs?"
  scot rag ask "what does errno 28 mean?" --words --where suffix=.md
  scot rag ask "what did we decide?" --where 'date>=2024-05' --where suffix!=.txt
  scot rag ask "how do I rotate logs?" --count 3 --json | jq -r '.hits[].document'
  scot rag ask "how do I rotate logs?" --llm http://127.0.0.1:8080/v1 --model NAME
  scot rag ask "how do I rotate logs?" --rerank ms-marco-MiniLM-L6-v2/ --rerank-from 100
  scot rag ask "how do I rotate logs?" --gguf model.gguf"""
# Beyond, SQLite has no whole numbers.
_NUMBER_MAX = 1 << 63
_ORDERS: Final = {">": "$gt", ">=": "$gte", "<": "$lt", "<=": "$lte"}
_CONDITION: Final = re.compile("(.+?)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
# Of what documents are said to be, where nothing is found.
_KEYS_SHOWN, _VALUES_SHOWN, _VALUE_LETTERS = 30, 5, 40
# What no name of a file has unless somebody wants it to be read as something else.
_NO_NAME: Final = {code: f"\\u{code:04x}" for code in (*range(32), *range(0x2028, 0x202F), *range(0x2066, 0x206A))}
# Letters of a passage that are shown, and other places of one.
_SHOWN = 400
_COPIES_SHOWN = 3


@dataclass(frozen=True)
class Condition:
    """What a key of a document's metadata is to be."""

    key: str
    sign: str
    value: str


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("question", type=_question)
    opening.add(parser)
    parser.add_argument(
        "--count", type=whole(1, reranking.COUNT_MAX), default=5, help="passages (default: %(default)s)"
    )
    parser.add_argument(
        "--words", action="store_true", help="look also for the question's words, not only its meaning"
    )
    parser.add_argument(
        "--where",
        type=_condition,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="of what a document is said to be, as suffix=.md; also KEY!=VALUE, and 'KEY>VALUE' with >, >=, < or "
        "<= (again for more)",
    )
    reranking.add(parser)
    parser.add_argument("--json", action="store_true", help="print them whole as JSON, with each stage's time")
    modelling.add(parser)


def _question(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError("there is no question in it")
    return _of_letters(text)


def _condition(text: str) -> Condition:
    found = _CONDITION.fullmatch(_of_letters(text))
    if not found:
        raise ArgumentTypeError(f"{text} is no KEY=VALUE, nor has it one of {' '.join(_ORDERS)} in place of =")
    return Condition(*found.groups())


def _of_letters(text: str) -> str:
    if not is_unicode(text):
        raise ArgumentTypeError(f"{printable(text)} is no UTF-8")
    return text


def _where(conditions: list[Condition]) -> dict[str, Any]:
    """All of them as a filter; what is said to be equal to a key several times is one of these values."""
    equal: dict[str, list[Any]] = {}
    for each in conditions:
        if each.sign == "=":
            equal.setdefault(each.key, []).extend(_read(each.value))
    others = [_compared(each) for each in conditions if each.sign != "="]
    every = [*({key: {"$in": values}} for key, values in equal.items()), *others]
    return {"$and": every} if every else {}


def _compared(condition: Condition) -> dict[str, Any]:
    values = _read(condition.value)
    if condition.sign == "!=":
        return {condition.key: {"$nin": values}}
    return {"$or": [{condition.key: {_ORDERS[condition.sign]: value}} for value in values]}


def _read(text: str) -> list[Any]:
    """A value as it stands, and if it is a number or true also as that."""
    # Brackets in each other may be more than Python reads.
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, int | float) and abs(value) < _NUMBER_MAX:
            return [text, value]
    return [text]


def run(flags: Namespace) -> int:
    """Does it."""
    failed = None
    ranking = reranking.opened(flags)
    with opening.opened(flags) as index, modelling.opened(flags) as model:
        count = ranking.wanted(flags.count) if ranking else flags.count
        where = _where(flags.where)
        answer = index.search(flags.question, count, where=where, with_words=flags.words, is_distinct=True)
        if ranking:
            ranking.apply(flags.question, answer, flags.count)
        nothing = "" if answer.hits else _nothing(index, flags)
        if model and answer.hits:
            try:
                _write(model, answer, flags)
            except RagError as error:
                # What was found is shown all the same.
                failed = error
    _show(answer, nothing, flags)
    if failed:
        raise failed
    return 0


def _show(answer: Answer, nothing: str, flags: Namespace) -> None:
    if flags.json:
        written = {"written": asdict(answer.written)} if answer.written else {}
        print(json.dumps(told.found(flags.question, answer) | written, indent=1))
        return
    is_written = answer.written and answer.written.text
    shown = "\n".join(_sources(answer)) if is_written else "\n\n".join(_passages(answer))
    print(printable(shown or nothing))
    print(_stages(answer), file=sys.stderr)


def _nothing(index: Index, flags: Namespace) -> str:
    """Why nothing is found, as far as that is known."""
    if not len(index):
        return "nothing found: the index is empty; fill it: scot rag index FOLDER"
    if not flags.where:
        return "nothing found"
    known = index.metadata(_KEYS_SHOWN, _VALUES_SHOWN)
    if not known:
        return "nothing found; nothing is known of the documents here that --where could ask for"
    shown = "\n".join(f"  {key}: {_several(values)}" for key, values in known.items())
    more = "" if len(known) < _KEYS_SHOWN else "\n  and more"
    return f"nothing found; of documents here is known, the most frequent first:\n{shown}{more}"


def _several(values: list[Any]) -> str:
    """Some values, each on one line."""
    texts = [str(value) for value in values[: _VALUES_SHOWN - 1]]
    shown = ", ".join(" ".join(text.split())[:_VALUE_LETTERS] for text in texts)
    return f"{shown}, …" if len(values) == _VALUES_SHOWN else shown


def _write(model: LanguageModel, answer: Answer, flags: Namespace) -> None:
    """The model's answer, printed as it comes unless all is printed at the end."""
    pieces = write_answer(model, flags.question, answer, letters_max=flags.letters)
    if flags.json:
        for _ in pieces:
            pass
        return
    try:
        for piece in pieces:
            print(printable(piece), end="", flush=True)
    finally:
        if answer.written and answer.written.text:
            # What is said next, if only why it broke off, begins a line.
            print("\n", flush=True)


def _passages(answer: Answer) -> list[str]:
    return [shown(place, hit) for place, hit in enumerate(answer.hits, 1)]


def _sources(answer: Answer) -> list[str]:
    """The passages by the numbers that the model knows them by."""
    shown = answer.hits[: answer.written.shown] if answer.written else []
    return [f"[{place}] {_cited(hit)}" for place, hit in enumerate(shown, 1)]


def _cited(hit: Hit) -> str:
    name, more = _place(hit), ", ".join(_beside(hit))
    return f"{name} ({more})" if more else name


def shown(place: int, hit: Hit) -> str:
    """A passage as it is printed, where it stands in what was found."""
    text = " ".join(hit.text.split())
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    # What put it there, if something did.
    score = [f"score {hit.score:.2f}"] if isinstance(hit, Ranked) else []
    beside = ", ".join((f"{hit.similarity:.2f}", *score, *_beside(hit)))
    lines = [f"{place}. {_place(hit)} ({beside})", f"   {text}"]
    if hit.copies:
        lines.append(f"   also in: {_copies(hit)}")
    return "\n".join(lines)


def _place(at: Hit | Place) -> str:
    """A document's name, with the line behind it as editors open it."""
    unit, _, number = at.location.partition(" ")
    # A name may have ends of lines, and marks that turn what is read around.
    name = at.document.translate(_NO_NAME)
    return f"{name}:{number}" if unit == LINE else name


def _beside(hit: Hit) -> list[str]:
    """What else says where it stands."""
    numbered = hit.location if not hit.location.startswith(LINE) else ""
    found = [said for said in (numbered, hit.section) if said]
    return found if found or hit.location else [f"letter {hit.start:,}"]


def _copies(hit: Hit) -> str:
    shown = ", ".join(_place(at) for at in hit.copies[:_COPIES_SHOWN])
    more = len(hit.copies) - _COPIES_SHOWN
    return f"{shown} and {more:,} more" if more > 0 else shown


def _stages(answer: Answer) -> str:
    times = ", ".join(f"{name} {_ms(ns)}" for name, ns in answer.stages_ns.items())
    said = f"{answer.estimated:,} passages estimated, {answer.regenerated:,} embedded again; {times}"
    if (written := answer.written) and written.prefill_ns:
        first = written.retrieval_ns + written.prefill_ns
        said += (
            f"\nfirst token after {_ms(first)}: retrieval {_ms(written.retrieval_ns)}, "
            f"prefill {_ms(written.prefill_ns)}"
        )
        if written.ended == "length":
            said += "; the answer is cut at its limit of tokens"
    return said


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.1f} ms"
