"""Objects out of a JSON document that is larger than memory.

A chunk's structure (quotes, brackets, depths) is found on columns of bytes; only the few brackets near the outside
are looked at one by one, and each object wanted is handed on as its own bytes, for a real parser to judge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

CHUNK_BYTES = 4 << 20
# A longer object is skipped and reported: one span of that size is damage, not data.
ELEMENT_BYTES_MAX = 32 << 20
# How far before a bracket its key is looked for.
KEY_BYTES_MAX = 4096

# The keys from the outside to a value; "[]" stands for an element of an array.
Path = tuple[str, ...]
# Asked at each bracket near the outside, with whether it opens an array: whether to look inside.
Enter = Callable[[Path, bool], bool]

_QUOTE, _BACKSLASH, _ARRAY = ord('"'), ord("\\"), ord("[")
_DELTA: Final = np.zeros(256, np.int8)
_DELTA[[ord("{"), ord("[")]] = 1
_DELTA[[ord("}"), ord("]")]] = -1
_PAIRS: Final = {ord("{"): ord("}"), ord("["): ord("]")}


class Malformed(Exception):
    """The brackets do not match, or the document ends before they do."""


@dataclass(frozen=True)
class Element:
    """A value at `path`: its bytes, None if too long; `is_end` when a container that was entered closes."""

    path: Path
    text: bytes | None
    is_end: bool = False


class _Structure:
    """The brackets outside of strings up to a depth, chunk by chunk."""

    def __init__(self, depth_max: int) -> None:
        self._depth_max = depth_max
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def brackets(self, chunk: bytes) -> Iterator[tuple[int, int, int]]:
        """(position, byte, depth of what it opens or closes, from 1)."""
        codes = np.frombuffer(chunk, np.uint8)
        quotes = self._quotes(codes)
        at = np.flatnonzero(_DELTA[codes])
        inside = (np.searchsorted(quotes, at) + self._in_string) % 2 == 1
        at = at[~inside]
        delta = _DELTA[codes[at]]
        depth = self._depth + np.cumsum(delta, dtype=np.int64) + (delta < 0)
        self._in_string ^= len(quotes) % 2 == 1
        self._depth += int(delta.sum(dtype=np.int64))
        near = depth <= self._depth_max
        yield from zip(at[near].tolist(), codes[at[near]].tolist(), depth[near].tolist(), strict=True)

    def _quotes(self, codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.intp]:
        """Quotes that begin or end a string: those after an even number of backslashes."""
        quotes = np.flatnonzero(codes == _QUOTE)
        slashes = np.flatnonzero(codes == _BACKSLASH)
        escaped_first, self._escaped = self._escaped, False
        if len(slashes) == 0:
            return quotes[quotes > 0] if escaped_first else quotes
        runs = slashes[np.concatenate(([True], np.diff(slashes) > 1))]
        ends = slashes[np.concatenate((np.diff(slashes) > 1, [True]))]
        lengths = ends - runs + 1
        if runs[0] == 0 and escaped_first:
            lengths[0] += 1
        odd_ends = ends[lengths % 2 == 1] + 1
        if escaped_first and runs[0] != 0:
            odd_ends = np.concatenate(([0], odd_ends))
        self._escaped = bool(len(odd_ends)) and int(odd_ends[-1]) == len(codes)
        return quotes[~np.isin(quotes, odd_ends)]


def elements(file: BinaryIO, enter: Enter, depth_max: int) -> Iterator[Element]:
    """The objects and arrays that `enter` refuses, each whole, of all documents in the file, in their order.

    `depth_max` is the greatest depth at which `enter` is asked.
    """
    walk = _Walk(enter)
    structure = _Structure(depth_max)
    while chunk := file.read(CHUNK_BYTES):
        yield from walk.feed(chunk, structure.brackets(chunk))
    walk.finish()


class _Walk:
    """The containers that are open, and the bytes of what is being collected."""

    def __init__(self, enter: Enter) -> None:
        self._enter = enter
        self._stack: list[tuple[Path, int]] = []
        # Path and bracket of the element under way, its depth; what of it earlier chunks held.
        self._element: tuple[Path, int] | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        # The end of the last chunk, for a key that was cut.
        self._tail = b""

    def feed(self, chunk: bytes, brackets: Iterator[tuple[int, int, int]]) -> Iterator[Element]:
        start, last = 0, 0
        for at, code, depth in brackets:
            if self._element is not None:
                if depth == len(self._stack) + 1:
                    yield self._close_element(chunk[start : at + 1], code)
                    last = at + 1
            elif code in _PAIRS:
                path = self._path(chunk, last, at)
                if self._enter(path, code == _ARRAY):
                    self._stack.append((path, code))
                else:
                    self._element, start = (path, code), at
                last = at + 1
            else:
                yield self._leave(code)
                last = at + 1
        if self._element is not None:
            self._hold(chunk[start:])
        self._tail = (self._tail + chunk[last:])[-KEY_BYTES_MAX:] if last == 0 else chunk[last:][-KEY_BYTES_MAX:]

    def finish(self) -> None:
        if self._element is not None or self._stack:
            raise Malformed("it ends in the middle")

    def _hold(self, part: bytes) -> None:
        self._held_bytes += len(part)
        if self._held_bytes <= ELEMENT_BYTES_MAX:
            self._held.append(part)
        else:
            self._held.clear()

    def _close_element(self, part: bytes, code: int) -> Element:
        assert self._element is not None
        path, opened = self._element
        if _PAIRS[opened] != code:
            raise Malformed("brackets do not match")
        self._hold(part)
        text = b"".join(self._held) if self._held_bytes <= ELEMENT_BYTES_MAX else None
        self._element, self._held_bytes = None, 0
        self._held.clear()
        return Element(path, text)

    def _leave(self, code: int) -> Element:
        if not self._stack or _PAIRS[self._stack[-1][1]] != code:
            raise Malformed("brackets do not match")
        return Element(self._stack.pop()[0], None, is_end=True)

    def _path(self, chunk: bytes, last: int, at: int) -> Path:
        if not self._stack:
            return ()
        path, opened = self._stack[-1]
        if opened == _ARRAY:
            return (*path, "[]")
        before = chunk[max(last, at - KEY_BYTES_MAX) : at]
        return (*path, _key(before if last else self._tail + before))


def _key(before: bytes) -> str:
    """The key at the end of `before`, which stands before a value; empty if there is none."""
    parts = before.rstrip().removesuffix(b":").rstrip().rsplit(b'"', 2)
    return parts[1].decode("utf-8", "replace") if len(parts) == 3 and not parts[2] else ""
