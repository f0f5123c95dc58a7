"""`scot study serve`: from the fleet down to one call's nine stages, in a browser on this machine."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later

HELP = "look at services, methods and single calls in a browser"
EXAMPLES = """\
  scot study serve report.html            the calls behind a report
  scot study serve report.store --port 0  a store, on any port that is free"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("store", type=Path, metavar="STORE", help="a store, or a report's HTML file")
    parser.add_argument("--port", type=int, default=8321, help="on the loopback address (default: %(default)s)")


run = later("scotfree.study.commands.serve")
