"""The command: `python -m scotfree.rag`, also `scot rag`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import cast

from scotfree import command_line
from scotfree.command_line import Command
from scotfree.rag import trouble

DESCRIPTION = (
    "Answers questions from your own documents, in little memory; nothing leaves this machine unless you say so."
)
_COMMANDS = ("index", "ask", "plan", "serve", "eval")
_REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (see `command_line`)."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        commands = _commands()
    except ModuleNotFoundError as error:
        print(
            f"scot rag: the package {error.name} is not installed; install what retrieval stands on: "
            "pip install 'scotfree[rag]'",
            file=sys.stderr,
        )
        return _REFUSED
    except KeyboardInterrupt:
        return command_line.interrupted("scot rag")
    return command_line.run("scot rag", DESCRIPTION, commands, words, trouble.told)


def _commands() -> dict[str, Command]:
    """Imported here, since a wheel without its extra has not all that they stand on."""
    return {name: cast(Command, importlib.import_module(f"scotfree.rag.commands.{name}")) for name in _COMMANDS}
