"""The same text in many places: shown once, with where else it stands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scotfree.rag.passages import Passages, Text, Wanted, passes

# Of a text so many other places are told.
PLACES_MAX: Final = 100


@dataclass(frozen=True)
class Place:
    """Where a text stands, too."""

    document: str
    start: int
    # As `line 12`; nothing, where that is not known.
    location: str


class Copies:
    """What one search knows of them."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        # The other passages with a text that is shown.
        self._others: dict[str, list[Text]] = {}

    def among(self, found: Sequence[Text], wanted: Wanted) -> set[int]:
        """Of what was found, in its order, and of all that is the same, what is not to be shown."""
        first: dict[str, Text] = {}
        outside: set[int] = set()
        for text in found:
            shown = first.setdefault(text.text, text)
            if shown is text:
                continue
            others = self._others.setdefault(text.text, [])
            if not others:
                others += self._alike(shown, found, wanted)
            elif text.number not in {other.number for other in others}:
                # Of a text without words all are not found at once.
                others.append(text)
            outside |= {other.number for other in others}
        return outside

    def of(self, text: Text) -> list[Place]:
        """Where else a text stands that is shown."""
        others = sorted(self._others.get(text.text, ()), key=lambda other: (other.document, other.start))
        return [Place(other.document, other.start, other.location) for other in others[:PLACES_MAX]]

    def _alike(self, shown: Text, found: Iterable[Text], wanted: Wanted) -> list[Text]:
        """All that have its text, as far as words find them, at least those that were found."""
        numbers = {text.number for text in found if text.text == shown.text}
        numbers |= set(self._passages.with_text(shown.text))
        others = self._passages.texts(sorted(numbers - {shown.number}))
        return [other for other in others.values() if passes(wanted, other.document, other.metadata)]
