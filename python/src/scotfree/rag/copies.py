"""The same passage in many places: shown once, with where else it stands.

The same are passages of one text of which the same was embedded: one under other headings, or in a document of
another title, says something of something else. What a file is called is not embedded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scotfree.rag.passages import Passages, Text, Wanted, passes

# Of a passage so many other places are told.
PLACES_MAX: Final = 100


@dataclass(frozen=True)
class Place:
    """Where a passage stands, too."""

    document: str
    start: int
    # As `line 12`; nothing, where that is not known.
    location: str


# The text, and what was embedded: title and headings with a text in front of it could trade words.
_Same = tuple[str, str]


class Copies:
    """What one search knows of them."""

    def __init__(self, passages: Passages) -> None:
        self._passages = passages
        # The other passages that are the same as one that is shown.
        self._others: dict[_Same, list[Text]] = {}

    def among(self, found: Sequence[Text], wanted: Wanted) -> set[int]:
        """Of what was found, in its order, and of all that is the same, what is not to be shown."""
        first: dict[_Same, Text] = {}
        outside: set[int] = set()
        for text in found:
            same = _same(text)
            shown = first.setdefault(same, text)
            if shown is text:
                continue
            others = self._others.setdefault(same, [])
            if not others:
                others += self._alike(shown, found, wanted)
            elif text.number not in {other.number for other in others}:
                # Of a text without words all are not found at once.
                others.append(text)
            outside |= {other.number for other in others}
        return outside

    def of(self, text: Text) -> list[Place]:
        """Where else a passage stands that is shown."""
        others = sorted(self._others.get(_same(text), ()), key=lambda other: (other.document, other.start))
        return [Place(other.document, other.start, other.location) for other in others[:PLACES_MAX]]

    def _alike(self, shown: Text, found: Iterable[Text], wanted: Wanted) -> list[Text]:
        """All that are the same, as far as words find them, at least those that were found."""
        same = _same(shown)
        numbers = {text.number for text in found if _same(text) == same}
        numbers |= set(self._passages.with_text(shown.text))
        others = self._passages.texts(sorted(numbers - {shown.number})).values()
        alike = (other for other in others if _same(other) == same)
        return [other for other in alike if passes(wanted, other.document, other.metadata)]


def _same(text: Text) -> _Same:
    return text.text, text.embedded
