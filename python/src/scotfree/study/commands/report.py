"""`scot study report`: from data to one self-contained HTML file."""

from __future__ import annotations

import json
import shlex
import sys
from argparse import Namespace
from pathlib import Path

from scotfree.study.analysis.cycles import rules
from scotfree.study.analysis.study import Study
from scotfree.study.commands import engines, ingest
from scotfree.study.figures import all_figures
from scotfree.study.figures.result import Coverage, Figure
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.write import check, parquet_folder, summary_of, write_report
from scotfree.study.store import MANIFEST, Store
from scotfree.study.working import Working


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
    with Working("counting all calls", quiet=flags.quiet) as at:
        count, whole = 0, len(all_figures())

        def progress(figure: Figure) -> None:
            nonlocal count
            count += 1
            at.at(f"figure {count} of {whole}: {figure.number}")

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
