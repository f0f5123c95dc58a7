"""What came, on disk: messages behind their lengths, as the ingest reads them, in segments that are whole.

FOLDER/000017.otlp   a segment: written, synced and renamed
FOLDER/.000018.half  the one that is written to, for many stores; hidden, so that nobody takes it for data

Invariant: a success is said only of what is in a file that is there. A segment never changes. Of the one under way
only whole messages count, also after a kill. Segments are few, since reading a file takes an ingest as long as
reading some thousands of spans.
"""

from __future__ import annotations

import errno
import io
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scotfree.study.watch.refusing import DISK, ENDING, KEPT, Refused

SUFFIX: Final = ".otlp"
_HALF: Final = ".half"
_LENGTH_BYTES: Final = 4
_PIECE_BYTES: Final = 1 << 20
# Of which parts of all that is kept is dropped at a time.
PARTS: Final = 16
SEGMENT_BYTES_MAX: Final = 16 << 20
# At the bound so much is dropped, the oldest first, that there is room for what comes until the next time.
_ROOM: Final = 4


@dataclass(frozen=True)
class Part:
    """Some of what is kept."""

    size: int = 0
    # Those of a watch before are not known.
    spans: int = 0

    def __add__(self, other: Part) -> Part:
        return Part(self.size + other.size, self.spans + other.spans)

    def __bool__(self) -> bool:
        return self.size > 0


class Segments:
    """The folder, of the one process that holds its lock."""

    def __init__(self, folder: Path, bytes_max: int) -> None:
        """What a process that was killed had written whole is a segment too."""
        self._folder = folder
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        # The half: its file, what of it is whole messages, and whether there is more than that.
        self._file: io.FileIO | None = None
        self._whole = Part()
        self._is_torn = False
        self._begun = 0.0
        self._is_closed = False
        # What was dropped and what somebody else removed, since it was last asked for.
        self._dropped, self._gone = Part(), Part()
        folder.mkdir(parents=True, exist_ok=True)
        for half in folder.glob(f".*{_HALF}"):
            _recover(half)
        self._parts = {path: Part(path.stat().st_size) for path in sorted(folder.glob(f"*{SUFFIX}"))}
        # Of segments and half.
        self._bytes = sum(part.size for part in self._parts.values())
        self._next = max([0, *(int(path.stem) for path in self._parts)]) + 1

    def files(self) -> list[Path]:
        """The segments, the oldest first."""
        with self._lock:
            return sorted(self._parts)

    def append(self, message: bytes, spans: int) -> None:
        """Writes it; `Refused` if there is no room. What the system has is safe from this process' end."""
        with self._lock:
            if self._is_closed:
                raise Refused(ENDING, "it is being ended")
            frame = len(message).to_bytes(_LENGTH_BYTES, "big") + message
            if self._bytes + len(frame) > self._bytes_max:
                raise Refused(KEPT, f"{self._bytes_max:,} bytes are kept; the oldest are dropped soon")
            try:
                self._write(frame, spans)
            except OSError as error:
                with suppress(OSError):
                    self._cut()
                raise Refused(DISK, f"it cannot be written: {error.strerror}") from error
            if self._whole.size >= min(SEGMENT_BYTES_MAX, self._bytes_max // PARTS):
                # What is there is there; it is tried again.
                with suppress(OSError):
                    self._seal()

    def _write(self, frame: bytes, spans: int) -> None:
        if self._file is None:
            self._file = io.FileIO(self._half(), "w")
            self._begun = time.monotonic()
        self._cut()
        self._is_torn = True
        rest = memoryview(frame)
        while rest:
            rest = rest[self._file.write(rest) :]
        # Not before: a file that is removed is written to as any other.
        if not self._has_half():
            raise OSError(errno.ENOENT, "the file that is written to was removed")
        self._is_torn = False
        self._whole += Part(len(frame), spans)
        self._bytes += len(frame)

    def _has_half(self) -> bool:
        """Whether there is one that is written to, where others find it. If nobody does, it is gone."""
        if self._file is None:
            return False
        with suppress(FileNotFoundError):
            if os.path.samestat(self._half().stat(), os.fstat(self._file.fileno())):
                return True
        self._file.close()
        self._lose(self._whole)
        # The next one has another number: what is kept is not what it was, even if it is as long again.
        self._file, self._whole, self._is_torn, self._next = None, Part(), False, self._next + 1
        return False

    def _lose(self, part: Part) -> None:
        self._gone += part
        self._bytes -= part.size

    def _cut(self) -> None:
        """Takes back what was not written to its end."""
        if self._file is not None and self._is_torn:
            self._file.truncate(self._whole.size)
            self._file.seek(self._whole.size)
            self._is_torn = False

    def _half(self) -> Path:
        return self._folder / f".{self._next:06}{_HALF}"

    def sync(self, part_s: float) -> None:
        """What came is safe from a loss of power, and a segment after that time. An `OSError` changes nothing."""
        with self._lock:
            if not self._has_half():
                return
            if self._file is not None and time.monotonic() - self._begun < part_s:
                os.fsync(self._file.fileno())
            else:
                self._seal()

    def copy(self, to: Path) -> bool:
        """What came since the last segment, as a file that does not change; whether there is any."""
        with self._lock:
            if not self._whole:
                return False
            left, half = self._whole.size, self._half().open("rb")
        with half, to.open("wb") as file:
            while left:
                file.write(piece := half.read(min(left, _PIECE_BYTES)))
                left -= len(piece)
        return True

    def state(self) -> tuple[int, int, int]:
        """Another whenever something came or was dropped: how many, and which and how long the half is."""
        with self._lock:
            return len(self._parts), self._next, self._whole.size

    def _seal(self) -> None:
        if self._file is None or not self._whole:
            return
        self._cut()
        os.fsync(self._file.fileno())
        path = self._folder / f"{self._next:06}{SUFFIX}"
        self._half().rename(path)
        self._file.close()
        self._parts[path] = self._whole
        self._file, self._whole, self._next = None, Part(), self._next + 1
        _sync(self._folder)

    def drop(self, keep_s: float) -> None:
        """Drops what is older than the newest by more than that, or too much."""
        with self._lock:
            times = self._times()
            paths = sorted(times)
            for path in paths[:-1]:
                is_old = times[path] < times[paths[-1]] - keep_s
                if not is_old and self._bytes <= self._bytes_max - self._bytes_max // _ROOM:
                    break
                path.unlink(missing_ok=True)
                part = self._parts.pop(path)
                self._bytes -= part.size
                self._dropped += part

    def _times(self) -> dict[Path, float]:
        """When each was written; those that are not there any more are gone."""
        times = {}
        for path in sorted(self._parts):
            try:
                times[path] = path.stat().st_mtime
            except FileNotFoundError:
                self._lose(self._parts.pop(path))
        return times

    def no_longer(self) -> tuple[Part, Part]:
        """What was dropped, and what somebody else removed, since the last time."""
        with self._lock:
            found = self._dropped, self._gone
            self._dropped, self._gone = Part(), Part()
            return found

    def close(self) -> None:
        """Seals what is there, and takes no more."""
        with self._lock:
            self._is_closed = True
            if self._has_half():
                self._seal()


def _recover(half: Path) -> None:
    """Cuts off what was not written to its end."""
    with half.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        whole = 0
        while len(head := file.read(_LENGTH_BYTES)) == _LENGTH_BYTES:
            end = whole + _LENGTH_BYTES + int.from_bytes(head, "big")
            if end > size:
                break
            whole = file.seek(end)
        file.truncate(whole)
        os.fsync(file.fileno())
    if whole:
        half.rename(half.with_name(half.stem.removeprefix(".") + SUFFIX))
    else:
        half.unlink()
    _sync(half.parent)


def _sync(folder: Path) -> None:
    """A rename is there after a loss of power, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
