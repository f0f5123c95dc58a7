"""The command: `python -m scotfree.study`, also `scot study`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scotfree import command_line
from scotfree.command_line import Command
from scotfree.study import outside
from scotfree.study.commands import compare, fleet, ingest, monitoring, report, serve

COMMANDS: dict[str, Command] = {
    "report": report,
    "ingest": ingest,
    "serve": serve,
    "compare": compare,
    "monitoring": monitoring,
    "fleet": fleet,
}
DESCRIPTION = "Reads the RPC latency tax off traces, metrics and profiles."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (see `command_line`)."""
    words = sys.argv[1:] if arguments is None else arguments
    return command_line.run("scot study", DESCRIPTION, COMMANDS, words, outside.told)
