"""`scot study compare A B`: what changed between two data sets, and whether it leaves its budget."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.numbers import whole
from scotfree.study.commands.flags import reading

HELP = "compare two data sets method by method; exit 1 if a method leaves its budget"
EXAMPLES = """\
  scot study compare main.store branch.store                          what changed
  scot study compare main.store branch.store --budget budget.toml     a gate: exit 1 if a method leaves it
  scot study compare before/ after/ --json | jq '.methods[] | select(.leaves)'"""
_METHODS = 1_000


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    help_ = "a store, a report's folder, or data"
    parser.add_argument("a", type=Path, metavar="A", help=help_)
    parser.add_argument("b", type=Path, metavar="B", help=help_)
    parser.add_argument("--budget", type=Path, metavar="FILE", help="TOML; see docs/plan.md")
    parser.add_argument(
        "--methods",
        type=whole(1, 1_000_000),
        default=_METHODS,
        metavar="COUNT",
        help="those that take most time in either (default: %(default)s)",
    )
    reading.add(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


run = later("scotfree.study.commands.compare")
