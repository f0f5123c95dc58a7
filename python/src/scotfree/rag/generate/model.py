"""What answering needs of a language model, whichever it is, and what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Piece:
    """Some letters of an answer, as they come; none, where a token is not to be shown."""

    text: str
    # Why nothing follows; of the last piece alone. `stop`: the model was done; `length`: it had no more tokens.
    ended: str = ""


class HangUp:
    """Ends a stream from another thread, also while it waits for its first token."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self._is_over = False

    def arrange(self, end: Callable[[], None]) -> None:
        """Says how it is ended; at once, if it is over already."""
        with self._lock:
            self._end = end
            is_over = self._is_over
        if is_over:
            end()

    def __call__(self) -> None:
        """Nobody waits any more."""
        with self._lock:
            self._is_over = True
            end = self._end
        if end:
            end()


class LanguageModel(Protocol):
    """Writes what follows from a prompt."""

    # How people call it.
    name: str
    # Where prompts go: an address, or a file of this machine.
    place: str

    def stream(self, prompt: str, tokens_max: int, hang_up: HangUp | None = None) -> Generator[Piece, None, None]:
        """At most so many tokens; closing it ends the work. A `RagError` says why there is no more."""

    def close(self) -> None:
        """Gives back what it holds."""


@dataclass
class Written:
    """What a language model wrote from the passages of an answer."""

    model: str
    # Passages that it was shown: the first so many.
    shown: int
    # The two parts of the time to the first token: until it was asked, and from then on.
    retrieval_ns: int
    prefill_ns: int = 0
    text: str = ""
    ended: str = ""
