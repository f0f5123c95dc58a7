"""What `scot study`, `scot plan` and `scot rag` take, as data.

The command `scot`, which is no Python program, makes completions and manual pages of it. `python -m
scotfree.described` prints it; it is kept as crates/scotfree-cli/data/python-commands.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from scotfree import command_line
from scotfree.command_line import Commands
from scotfree.rag import cli as rag
from scotfree.study import cli as study
from scotfree.study.plan import cli as plan


def described() -> list[dict[str, Any]]:
    """Of each program its name, what it does, and its commands with their arguments."""
    return [
        _program("study", study.DESCRIPTION, study.COMMANDS),
        _program("plan", plan.DESCRIPTION, plan.COMMANDS, plan.DEFAULT),
        _program("rag", rag.DESCRIPTION, rag.COMMANDS),
    ]


def text() -> str:
    """The same as JSON."""
    return json.dumps(described(), indent=1, ensure_ascii=False) + "\n"


def _program(name: str, description: str, commands: Commands, default: str | None = None) -> dict[str, Any]:
    loaded = {command: commands.load(command) for command in commands.helps}
    parser = command_line.parser_of(f"scot {name}", description, commands, loaded)
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {
        "name": name,
        "about": description,
        # The command that is meant where none is named.
        "default": default,
        "commands": [
            {
                "name": command,
                "about": module.HELP,
                "examples": module.EXAMPLES,
                "arguments": _arguments(subparsers.choices[command]),
            }
            for command, module in loaded.items()
        ],
    }


def _arguments(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    return [_argument(parser, action) for action in actions if action.help is not argparse.SUPPRESS]


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> dict[str, Any]:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    takes_value = action.nargs != 0
    told = {
        "flags": list(action.option_strings),
        "value": metavar if takes_value else None,
        "choices": [str(choice) for choice in action.choices or ()],
        "is_path": action.type is Path,
        "is_required": action.required,
        # More than one value behind it, or more than once.
        "is_many": action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction),
        "help": _help(parser, action),
    }
    return {key: value for key, value in told.items() if value}


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The text, without the home of whoever asks."""
    expanded = parser._get_formatter()._expand_help(action) if action.help else ""
    return expanded.replace(str(Path.home()), "~")


if __name__ == "__main__":
    print(text(), end="")
