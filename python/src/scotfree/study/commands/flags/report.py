"""`scot study report`: from data to one self-contained HTML file."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.study.commands.flags import engines, reading

HELP = "read DATA and write one self-contained HTML file"
EXAMPLES = """\
  scot study report traces/ -o report.html        a folder with whatever your tools write
  scot study report spans.jsonl profile.folded    single files
  scot study report report.store                  what an ingest left
  scot study report traces/ --json | jq .figures  what it found, for scripts
  scot study report report.store --engine spark --spark-master spark://HOST:7077
                                                  counted by a cluster that sees the store under the same path"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, folders of them, or one store")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="(default: %(default)s)")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="(default: the output's name with .store)")
    reading.add(parser)
    engines.add(parser)
    parser.add_argument(
        "--rules",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="what your own functions are (docs/cycle-tax.md); goes before our rules",
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


run = later("scotfree.study.commands.report")
