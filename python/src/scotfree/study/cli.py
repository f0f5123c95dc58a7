"""The command: `python -m scotfree.study`, also `scot study`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import latency
from scotfree.study.ingest.run import ingest
from scotfree.study.trouble import StudyError


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; 0 if it did what it was asked, 1 for a verdict, 2 for what the user must change."""
    parser = argparse.ArgumentParser(prog="scot study", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="read DATA and write one self-contained HTML file")
    report.add_argument("data", type=Path, nargs="+", metavar="DATA")
    report.add_argument("-o", "--output", type=Path, default=Path("report.html"))
    flags = parser.parse_args(arguments)
    try:
        store = ingest(flags.data, flags.output.with_suffix(".store"))
        result = latency.compute(Study(store, DuckEngine(store)))
    except StudyError as error:
        print(f"scot study: {error}", file=sys.stderr)
        return 2
    print(result.findings, result.comparisons)
    return 0
