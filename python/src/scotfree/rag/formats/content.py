"""What a format's reader gives: a text with its outline, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass

from scotfree.rag.outline import NONE, Outline


@dataclass(frozen=True)
class Content:
    """Of a file."""

    text: str
    outline: Outline = NONE


class Unread(Exception):
    """Why a file is no document."""

    def __init__(self, reason: str, *, is_unseen: bool = False) -> None:
        """`is_unseen`: it could not be looked at, so that it may be what it was."""
        super().__init__(reason)
        self.is_unseen = is_unseen
