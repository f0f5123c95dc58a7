"""`scot study ingest`: from data to a store, which other commands read."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.study.commands.flags import reading

HELP = "read DATA into a store, once for all that asks of it"
EXAMPLES = """\
  scot study ingest traces/ --store fleet.store       goes on where it was if it was interrupted
  scot study ingest a.json b.json --store x --form jaeger"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, or folders of them")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="where the store is made")
    reading.add(parser)


run = later("scotfree.study.commands.ingest")
