"""Text in UTF-16 or UTF-32, as some programs of Windows write it: told from its beginning, not read."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Final

# The longer marks first: the mark of UTF-16 begins that of UTF-32.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_LOOKED_AT: Final = 64
_LEAST: Final = 8
_COMPRESSED: Final = (".gz", ".zst")


def encoding_of(head: bytes) -> str | None:
    """The encoding of a file that begins so; None if it is neither."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding
    # Without a mark: every second byte of what the forms begin with is zero.
    start = head[:_LOOKED_AT]
    for first, encoding in ((0, "UTF-16LE"), (1, "UTF-16BE")):
        letters, zeros = start[first::2], start[1 - first :: 2]
        if len(letters) >= _LEAST and not any(zeros) and all(9 <= letter < 127 for letter in letters):
            return encoding
    return None


def advice(path: Path, encoding: str) -> str:
    """How to make of it what is read."""
    first = "decompress it, then " if path.suffix in _COMPRESSED else ""
    return f"{first}convert it: iconv -f {encoding} -t UTF-8 FILE > NEW"
