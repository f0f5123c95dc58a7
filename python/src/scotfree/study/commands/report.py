"""`scot study report`: from data to one self-contained HTML file."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tqdm import tqdm

from scotfree.study.analysis.cycles import rules
from scotfree.study.analysis.study import Study
from scotfree.study.commands import engines, ingest
from scotfree.study.figures import all_figures
from scotfree.study.figures.result import Coverage, Figure
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.write import check, parquet_folder, summary_of, write_report
from scotfree.study.store import MANIFEST, Store

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
    ingest.add_reading(parser)
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


def run(flags: Namespace) -> int:
    """Does it."""
    rule_files = tuple(flags.rules)
    check(flags.output)
    # Wrong rules are told before data is read for minutes.
    rules.load(rule_files)
    engines.check(flags)
    store = _store(flags)
    with engines.opened(flags, store) as engine:
        study = Study(store, engine, rule_files=rule_files)
        computed = _write(study, flags)
    if flags.json:
        print(json.dumps(summary_of(study, computed, flags.output), indent=1))
    print(_last_line(computed, flags.output), file=sys.stderr)
    return 0


def _write(study: Study, flags: Namespace) -> list[Computed]:
    with tqdm(total=len(all_figures()), unit="figure", disable=None, leave=False) as bar:

        def progress(figure: Figure) -> None:
            bar.set_description(figure.number)
            bar.update()

        return write_report(study, flags.output, command=_command(flags), progress=progress)


def _command(flags: Namespace) -> str:
    data = map(str, flags.data)
    return shlex.join(["scot", "study", "report", *data, *engines.chosen(flags), "-o", str(flags.output)])


def _store(flags: Namespace) -> Store:
    if len(flags.data) == 1 and (flags.data[0] / MANIFEST).exists():
        return Store.open(flags.data[0])
    # The page's own store is as new as the page.
    return ingest.read(flags, flags.store or flags.output.with_suffix(".store"), replaces=flags.store is None)


def _last_line(computed: list[Computed], output: Path) -> str:
    complete = sum(each.result.coverage == Coverage.COMPLETE for each in computed)
    return f"{output}: {complete} of {len(computed)} figures complete; aggregates in {parquet_folder(output)}/"
