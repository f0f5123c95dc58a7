"""The command: `python -m scotfree.study`, also `scot study`.

Exit codes: 0 it did what it was asked; 1 a verdict (a budget exceeded); 2 what the user must change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol

import duckdb
import pyarrow as pa

from scotfree.study import outside
from scotfree.study.commands import compare, fleet, ingest, monitoring, report, serve
from scotfree.study.trouble import StudyError, printable


class Command(Protocol):
    """A module of `scotfree.study.commands`."""

    HELP: str
    EXAMPLES: str

    def add(self, parser: argparse.ArgumentParser) -> None:
        """Says the flags."""

    def run(self, flags: argparse.Namespace) -> int:
        """Does it; the exit code."""


COMMANDS: dict[str, Command] = {
    "compare": compare,
    "ingest": ingest,
    "fleet": fleet,
    "report": report,
    "serve": serve,
    "monitoring": monitoring,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    flags = _parser().parse_args(arguments)
    try:
        return COMMANDS[flags.command].run(flags)
    except StudyError as error:
        print(f"scot study: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except (OSError, MemoryError, duckdb.Error, pa.ArrowException) as error:
        print(f"scot study: {printable(str(outside.told(error)))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("scot study: interrupted; the same command goes on where this one was", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scot study", description="Reads the RPC latency tax off traces, metrics and profiles."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        added = commands.add_parser(
            name,
            help=command.HELP,
            description=command.HELP,
            epilog=f"Examples:\n{command.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add(added)
    return parser
