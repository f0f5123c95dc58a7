"""The command: `python -m scotfree.study`, also `scot study`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scotfree import command_line, short_lived
from scotfree.command_line import Commands
from scotfree.study import outside
from scotfree.study.without_pandas import without_pandas

COMMANDS = Commands(
    "scotfree.study.commands.flags",
    {
        "report": "read DATA and write one self-contained HTML file",
        "ingest": "read DATA into a store, once for all that asks of it",
        "serve": "look at services, methods and single calls in a browser",
        "watch": "receive traces over OTLP/HTTP and look at them in a browser as they come",
        "compare": "compare two data sets edge by edge; exit 1 if something is worse or leaves its budget",
        "monitoring": "write the live counterparts of a report: Prometheus' rules and Grafana's dashboard",
        "fleet": "make the calls, metrics and profiles of a synthetic fleet",
    },
)
DESCRIPTION = "Reads the RPC latency tax off traces, metrics and profiles."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (see `command_line`)."""
    words = sys.argv[1:] if arguments is None else arguments
    if arguments is None:
        without_pandas(words)
        short_lived.begin()
    code = command_line.run("scot study", DESCRIPTION, COMMANDS, words, outside.told)
    return short_lived.leave(code) if arguments is None else code
