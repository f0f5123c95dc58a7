"""`scot study report`: from data to one self-contained HTML file."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import latency
from scotfree.study.ingest.run import ingest

HELP = "read DATA and write one self-contained HTML file"
EXAMPLES = """\
  scot study report traces/ -o report.html        a folder with whatever your tools write
  scot study report spans.jsonl profile.folded    single files"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, or folders of them")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), help="(default: %(default)s)")


def run(flags: Namespace) -> int:
    """Does it."""
    store = ingest(flags.data, flags.output.with_suffix(".store"))
    result = latency.compute(Study(store, DuckEngine(store)))
    print(result.findings, result.comparisons)
    return 0
