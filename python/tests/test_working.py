"""What a command says while it works."""

from __future__ import annotations

import io
import os
import pty
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr

import pytest

from scotfree.study import working
from scotfree.study.working import Working


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("_SILENT_S", "_TERMINAL_S", "_LOG_S"):
        monkeypatch.setattr(working, name, 0.001)
    yield


class _Told(io.StringIO):
    """Tells when something was written."""

    def __init__(self, one: str) -> None:
        super().__init__()
        self.one, self.is_heard = one, threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        if self.one in self.getvalue():
            self.is_heard.set()
        return count


def test_what_is_done_is_said_from_line_to_line_and_nothing_while_something_else_speaks() -> None:
    told = _Told("second … ")
    with redirect_stderr(told), Working() as at:
        at.at("first")
        at.at("second")
        assert told.is_heard.wait(60)
    said = told.getvalue().splitlines()
    assert said and all(" … 0 s" in line for line in said), said
    assert "first" not in said[-1]


def test_a_terminal_has_one_line_that_is_gone_at_the_end() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        with redirect_stderr(terminal), Working("counting"):
            said = b""
            while b"counting" not in said:
                said += os.read(ours, 1024)
        os.set_blocking(ours, False)
        said += os.read(ours, 65536)
    assert said.endswith(b"\r\x1b[K") and b"\n" not in said
    os.close(ours)


def test_who_wants_quiet_has_it_and_a_reader_who_has_left_changes_nothing() -> None:
    quiet = io.StringIO()
    with redirect_stderr(quiet), Working("counting", quiet=True) as at:
        assert not at._thread.is_alive()
    assert quiet.getvalue() == ""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    with redirect_stderr(Gone()), Working("counting") as at:
        at._thread.join(60)
        assert not at._thread.is_alive()
