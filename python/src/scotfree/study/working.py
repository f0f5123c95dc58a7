"""What a command is at, on standard error: nobody is to wait in silence for longer than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Final, Self

_SILENT_S: Final = 2.0
# A terminal's line is written anew; a log wants one now and then.
_TERMINAL_S: Final = 1.0
_LOG_S: Final = 10.0
_ERASED: Final = "\r\x1b[K"


class Working:
    """Says what is done and since when, by a thread of its own, until it is closed by its `with`."""

    def __init__(self, what: str = "", *, quiet: bool = False) -> None:
        """Begins with this. Nothing is said if `quiet`, or while it is empty: something else speaks then."""
        self._what, self._quiet = what, quiet
        self._stream = sys.stderr
        self._is_terminal = self._stream is not None and self._stream.isatty()
        self._ended = threading.Event()
        self._has_said = False
        self._thread = threading.Thread(target=self._say, name="working", daemon=True)

    def at(self, what: str) -> None:
        """What is done from now on."""
        self._what = what

    def __enter__(self) -> Self:
        """Begins to count."""
        if not self._quiet and self._stream is not None:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Says nothing more, and leaves no line behind on a terminal."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._has_said and self._is_terminal:
            self._write(_ERASED)

    def _say(self) -> None:
        begun, pause = time.monotonic(), _SILENT_S
        while not self._ended.wait(pause):
            if not self._what:
                continue
            seconds = f"{time.monotonic() - begun:.0f} s"
            self._has_said = True
            line = f"{self._what} … {seconds}"
            self._write(f"{_ERASED}{line}" if self._is_terminal else f"{line}\n")
            pause = _TERMINAL_S if self._is_terminal else _LOG_S

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Whoever does not listen any more is told nothing more.
            self._ended.set()
