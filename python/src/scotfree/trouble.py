"""What the user must change, and how it is written."""

from __future__ import annotations

import errno
import re
from typing import Final

# Of terminals, but for the ends of lines and columns.
_STEERING: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# What libraries say whose errors have no number.
_FULL: Final = ("no space left", "out of disk space", "max_temp_directory_size", "disk is full")


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk is full."""
    number = getattr(error, "errno", None)
    return number in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error).lower() for words in _FULL)


def printable(text: str) -> str:
    """A text that can be written: names of files are bytes, and Python keeps what is no UTF-8 as no text.

    What would steer a terminal is written as its number.
    """
    seen = _STEERING.sub(lambda found: f"\\x{ord(found.group()):02x}", text)
    return seen.encode("utf-8", "backslashreplace").decode()


def is_unicode(*texts: str) -> bool:
    """Whether files can hold them: JSON, names of files and arguments may have halves of letters."""
    try:
        return all(text.encode() is not None for text in texts)
    except UnicodeEncodeError:
        return False


class UserError(Exception):
    """Something that the user must change: what was tried and what was in the way, and what to do next."""

    def __init__(self, problem: str, advice: str) -> None:
        super().__init__(f"{problem}; {advice}")
        self.problem = problem
        self.advice = advice
