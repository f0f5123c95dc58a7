"""A language model's answer from what a search found, as it comes, with its time beside that of the search."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Final

from scotfree.rag.generate.model import HangUp, LanguageModel, Piece, Written
from scotfree.rag.generate.prompt import LETTERS_MAX, prompt
from scotfree.rag.searching import Answer

TOKENS_MAX: Final = 1024
_PREFILL: Final = "prefill"
_DECODE: Final = "decode"
# No language's tokens are so long on average; a model that goes on has not kept to its limit.
_TOKEN_LETTERS_MAX: Final = 64


def write_answer(
    model: LanguageModel,
    question: str,
    answer: Answer,
    *,
    letters_max: int = LETTERS_MAX,
    tokens_max: int = TOKENS_MAX,
    hang_up: HangUp | None = None,
) -> Generator[str, None, None]:
    """What the model writes from the hits of a search, as it comes.

    It is shown at most `letters_max` letters of them, and writes at most `tokens_max` tokens. `answer` gets the
    stages prefill (from the request to the first token) and decode, and `written`, also if it breaks off. By
    `hang_up` another thread ends it.
    """
    text, shown = prompt(question, (hit.text for hit in answer.hits), letters_max)
    for stage in (_PREFILL, _DECODE):
        answer.stages_ns.pop(stage, None)
    written = answer.written = Written(model.name, shown, sum(answer.stages_ns.values()))
    with closing(model.stream(text, tokens_max, hang_up)) as pieces:
        for piece in _within(_staged(answer, written, pieces), tokens_max):
            written.text += piece.text
            written.ended = piece.ended
            if piece.text:
                yield piece.text


def reply(model: LanguageModel, text: str, tokens_max: int) -> Piece:
    """All that a model says to a text, and why it ended."""
    with closing(model.stream(text, tokens_max)) as pieces:
        said = list(_within(pieces, tokens_max))
    return Piece("".join(piece.text for piece in said), said[-1].ended if said else "")


def _within(pieces: Iterable[Piece], tokens_max: int) -> Iterator[Piece]:
    """The pieces as far as a model may go, which may not keep to it."""
    letters = 0
    for place, piece in enumerate(pieces):
        yield piece
        letters += len(piece.text)
        if not piece.ended and (place >= tokens_max or letters > tokens_max * _TOKEN_LETTERS_MAX):
            yield Piece("", "length")
            return


def _staged(answer: Answer, written: Written, pieces: Generator[Piece, None, None]) -> Iterator[Piece]:
    """The pieces; what the reader does between two of them is no stage."""
    with answer.stage(_PREFILL):
        piece = next(pieces, None)
    written.prefill_ns = answer.stages_ns[_PREFILL]
    while piece is not None:
        yield piece
        with answer.stage(_DECODE):
            piece = next(pieces, None)
