"""What errors come to at the command line."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import pytest

from scotfree.study import command_line
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
    assert command_line.run("try", "tries", {"fail": Failing(error)}, ["fail"]) == code
    assert said in capsys.readouterr().err
