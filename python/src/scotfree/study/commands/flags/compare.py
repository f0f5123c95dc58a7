"""`scot study compare A B`: what changed between two data sets, and where that comes from."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from pathlib import Path
from typing import Final

from scotfree.command_line import later
from scotfree.numbers import duration_ns, whole
from scotfree.study.commands.flags import reading
from scotfree.study.edges import times

HELP = "compare two data sets edge by edge; exit 1 if something is worse or leaves its budget"
EXAMPLES = """\
  scot study compare main.store branch.store                          what is worse, and where it comes from
  scot study compare old/ new/ --from +2m --to 2026-01-31T12:10:00Z   without the first two minutes
  scot study compare now.store --baseline -20m..-10m --from -10m      the last ten minutes beside the ten before
  scot study compare main.store branch.store --budget budget.toml     a gate: exit 1 if a method leaves it
  scot study compare redis.store persist.store --least 5us            calls of some ten microseconds
  scot study compare before/ after/ --json | jq -r '.ranking[].says'

An edge is a client's service, a server's service and a method. Times are RFC 3339, or from the data's end (-10m)
or begin (+10m). Exit codes: 0 nothing worse, 1 something worse (with --budget: a method leaves it), 2 it could not
be read or nothing is comparable."""
_METHODS = 1_000
# What flags of times begin with; else the parser takes it for a flag.
_NEGATIVE: Final = re.compile(r"^-[0-9]")


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    help_ = "a store, a report's folder, or data"
    parser.add_argument("a", type=Path, metavar="A", help=help_)
    parser.add_argument("b", type=Path, nargs="?", metavar="B", help=f"{help_}; none: A, with --baseline")
    parser.add_argument("--budget", type=Path, metavar="FILE", help="TOML; see docs/plan.md")
    parser.add_argument(
        "--from", dest="from_", type=times.moment, metavar="T", help="calls since then, of both sides"
    )
    parser.add_argument("--to", type=times.moment, metavar="T", help="calls before then, of both sides")
    parser.add_argument(
        "--baseline",
        type=times.span,
        metavar="FROM..TO",
        help="the range of the first side; --from and --to are the second's then",
    )
    parser._negative_number_matcher = _NEGATIVE
    parser.add_argument(
        "--least",
        type=duration_ns,
        default=times.NS_MIN,
        metavar="TIME",
        help="what is less, or less than a tenth, is too little to matter (default: 50us; before a Redis: 5us)",
    )
    parser.add_argument(
        "--methods",
        type=whole(1, 1_000_000),
        default=_METHODS,
        metavar="COUNT",
        help="with --budget or --json: those that take most time in either (default: %(default)s)",
    )
    reading.add(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


run = later("scotfree.study.commands.compare")
