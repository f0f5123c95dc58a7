"""The command `scot plan`: what each remedy would leave of a user's own calls.

`scot plan DATA…` prices every remedy, `scot plan fit` makes the fit that a remedy's forecast rests on, `scot plan
capacity` sizes a device. Exit codes as of `scot study`: 0 done, 2 what the user must change.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from scotfree.study.cli import Command
from scotfree.study.plan.commands import capacity, fit, price
from scotfree.study.trouble import StudyError

COMMANDS: dict[str, Command] = {"price": price, "fit": fit, "capacity": capacity}
_DEFAULT = "price"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*COMMANDS, "-h", "--help"):
        words.insert(0, _DEFAULT)
    flags = _parser().parse_args(words)
    try:
        return COMMANDS[flags.command].run(flags)
    except StudyError as error:
        print(f"scot plan: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scot plan", description="Forecasts what each remedy would leave of your own calls."
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


if __name__ == "__main__":
    raise SystemExit(main())
