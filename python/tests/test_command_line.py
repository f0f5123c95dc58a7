"""What errors come to at the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import zipkin_spans

from scotfree import command_line
from scotfree.command_line import Command, Commands
from scotfree.study import outside
from scotfree.study.trouble import StudyError


@pytest.fixture(autouse=True)
def _plain_signals() -> Iterator[None]:
    """Who runs the tests in the background has SIGINT ignored, which a command leaves so."""
    interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)
    terminates = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, interrupts)
    signal.signal(signal.SIGTERM, terminates)


class Failing:
    """A command that raises."""

    HELP = "fails"
    EXAMPLES = "  try fails"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def add(self, parser: ArgumentParser) -> None:
        pass

    def run(self, flags: Namespace) -> int:
        raise self._error


class Stopped(Failing):
    """A command that a signal reaches, and whose library raises an error of its own instead."""

    def __init__(self, error: BaseException, number: int = signal.SIGINT) -> None:
        super().__init__(error)
        self._number = number

    def run(self, flags: Namespace) -> int:
        try:
            signal.raise_signal(self._number)
        except BaseException:
            raise self._error from None
        return 0


class Finalized:
    """What a signal reaches in its finalizer, where Python drops exceptions."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


class Finalizing(Failing):
    """A command in which something is finalized while a signal comes, and that goes on for a while."""

    def __init__(self, lasts_s: float) -> None:
        super().__init__(AssertionError())
        self._lasts_s = lasts_s

    def run(self, flags: Namespace) -> int:
        Finalized()
        threading.Event().wait(self._lasts_s)
        return 0


class Only(Commands):
    """One command, which is there already."""

    def __init__(self, command: Command) -> None:
        super().__init__("nowhere", {"fail": command.HELP})
        self._command: Command
        object.__setattr__(self, "_command", command)

    def load(self, name: str) -> Command:
        return self._command


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (StudyError("read x: it is not there", "name another"), 2, "name another"),
        (OSError(28, "No space left on device"), 2, "make room"),
        (MemoryError(), 2, "--memory"),
        (KeyboardInterrupt(), 130, "goes on"),
        (BrokenPipeError(), 0, ""),
        # Not 1: that is a verdict's.
        (KeyError("p95"), 70, "a fault of its own"),
    ],
)
def test_every_error_has_its_code_and_words(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("try", "tries", Only(Failing(error)), ["fail"], outside.told) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Query interrupted"),
        duckdb.InvalidInputException("reading the stream"),
        StudyError("read x: it ends early", "mend it"),
        KeyboardInterrupt(),
    ],
)
def test_an_interrupt_is_one_whatever_a_library_makes_of_it(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("try", "tries", Only(Stopped(error)), ["fail"], outside.told) == 130
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("try: interrupted; ")


@pytest.mark.parametrize("lasts_s", [0, 60])
def test_an_interrupt_that_python_drops_is_one(lasts_s: float, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("try", "tries", Only(Finalizing(lasts_s)), ["fail"], outside.told) == 130
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("try: interrupted; ")


def test_what_was_there_before_is_there_again() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    hook = sys.unraisablehook
    assert command_line.run("try", "tries", Only(Failing(KeyboardInterrupt())), ["fail"], outside.told) == 130
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert sys.unraisablehook is hook


# Runs a command in which SIGTERM comes while it reads into a folder of its own.
TERMINATED = """
import signal, sys
from scotfree.study.commands import ingest
from scotfree.study.plan import cli as plan
from scotfree.study import cli as study
ingest.read = lambda flags, folder: signal.raise_signal(signal.SIGTERM)
sys.exit((plan if sys.argv[1] == "plan" else study).main(sys.argv[2:]))
"""


@pytest.mark.parametrize(
    "words", [("study", "compare", "a", "b"), ("plan", "a"), ("plan", "capacity", "a"), ("plan", "fit", "a")]
)
def test_whoever_is_ended_leaves_no_folder_behind(tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("a", "b"):
        zipkin_spans.write(tmp_path / name)
    (tmp_path / "tmp").mkdir()
    more = ("--remedy", "b", "-o", "fit.json") if "fit" in words else ()
    done = subprocess.run(
        [sys.executable, "-c", TERMINATED, *words, *more],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)), "TMPDIR": "tmp"},
    )
    assert (done.returncode, done.stderr) == (143, "")
    assert not list((tmp_path / "tmp").glob("scot-*"))


CAPACITY = ("scotfree.study.plan.cli", "capacity", "--rate", "10", "--time-to-stable", "2ms")


def run_into(output: int, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": "", **environment},
    )


@pytest.mark.parametrize("words", [CAPACITY, ("scotfree.study", "--help")])
def test_whoever_does_not_read_on_is_no_fault(words: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = run_into(writing, *words)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_cannot_be_printed_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        done = run_into(full.fileno(), *CAPACITY)
    assert done.returncode == 2
    assert done.stderr.startswith("scot plan: the disk is full")
    assert len(done.stderr.splitlines()) == 1


def test_letters_that_the_terminal_lacks_are_written_otherwise() -> None:
    done = run_into(subprocess.PIPE, *CAPACITY, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "scot switch \\u2026 with one of" in done.stdout


def test_whoever_does_not_read_what_is_told_gets_the_report(tmp_path: Path) -> None:
    """As `scot study report … 2>&1 | head` does it."""
    spans = zipkin_spans.write(tmp_path / "spans.json")
    reading, writing = os.pipe()
    os.close(reading)
    page = tmp_path / "report.html"
    words = [sys.executable, "-m", "scotfree.study", "report", str(spans), "-o", str(page)]
    done = subprocess.run(words, stdout=writing, stderr=writing, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert page.exists()
