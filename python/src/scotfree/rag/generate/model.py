"""What answering needs of a language model, whichever it is, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Piece:
    """Some letters of an answer, as they come; none, where a token is not to be shown."""

    text: str
    # Why nothing follows; of the last piece alone. `stop`: the model was done; `length`: it had no more tokens.
    ended: str = ""


class LanguageModel(Protocol):
    """Writes what follows from a prompt."""

    # How people call it.
    name: str
    # Where prompts go: an address, or a file of this machine.
    place: str

    def stream(self, prompt: str, tokens_max: int) -> Generator[Piece, None, None]:
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
