"""What a format's reader gives: a text with its outline, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scotfree.rag.outline import NONE, Outline


@dataclass(frozen=True)
class Content:
    """Of a file."""

    text: str
    outline: Outline = NONE
    # What it says of itself.
    metadata: dict[str, Any] = field(default_factory=dict)
    # The letter at which its passages begin.
    begin: int = 0
    # Why its front matter is text.
    doubt: str = ""


class Unread(Exception):
    """Why a file is no document."""

    def __init__(self, reason: str, *, is_unseen: bool = False) -> None:
        """`is_unseen`: it could not be looked at, so that it may be what it was."""
        super().__init__(reason)
        self.is_unseen = is_unseen
