"""What errors come to at the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest
import zipkin_spans

from scotfree import command_line
from scotfree.command_line import Command, Commands
from scotfree.study import outside
from scotfree.study.trouble import StudyError


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
