"""What the programs `scot-study` and `scot-plan` have in common: commands as modules, and what errors come to.

Exit codes: 0 it did what it was asked; 1 a verdict (a budget exceeded); 2 what the user must change; 70 a fault of
the program's own, told with its traceback; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import duckdb
import pyarrow as pa

from scotfree.study import outside
from scotfree.study.trouble import StudyError, printable

FAULT: Final = 70


class Command(Protocol):
    """A module of `scotfree.study.commands`, or of another program."""

    HELP: str
    EXAMPLES: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Says the flags."""

    def run(self, flags: argparse.Namespace) -> int:
        """Does it; the exit code."""


def run(program: str, description: str, commands: Mapping[str, Command], words: Sequence[str]) -> int:
    """Runs the command that the words name; returns the exit code."""
    flags = _parser(program, description, commands).parse_args(words)
    try:
        return commands[flags.command].run(flags)
    except StudyError as error:
        return _refuse(program, error)
    except BrokenPipeError:
        return 0
    except (OSError, MemoryError, duckdb.Error, pa.ArrowException) as error:
        return _refuse(program, outside.told(error))
    except KeyboardInterrupt:
        print(f"{program}: interrupted; the same command goes on where this one was", file=sys.stderr)
        return 130
    except Exception as error:
        traceback.print_exc()
        print(
            f"{program}: a fault of its own: {printable(str(error))}; please report the lines above",
            file=sys.stderr,
        )
        return FAULT


def _refuse(program: str, error: StudyError) -> int:
    print(f"{program}: {printable(str(error))}", file=sys.stderr)
    return 2


def _parser(program: str, description: str, commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=description)
    names = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in commands.items():
        added = names.add_parser(
            name,
            help=command.HELP,
            description=command.HELP,
            epilog=f"Examples:\n{command.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(added)
    return parser
