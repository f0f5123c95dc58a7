"""`scot study ingest`: from data to a store, which other commands read."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from scotfree.study.ingest import summary
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.run import ingest
from scotfree.study.store import Store
from scotfree.study.trouble import printable


def run(flags: Namespace) -> int:
    """Does it."""
    read(flags, flags.store)
    return 0


def read(flags: Namespace, folder: Path, *, replaces: bool = False) -> Store:
    """The store of what the flags name; says what became of it unless it is to be quiet."""
    options = Options(
        flags.form,
        ColumnMap.given(flags.map),
        flags.epoch,
        Limits(flags.memory, flags.threads),
        quiet=flags.quiet,
        replaces=replaces or flags.replace,
    )
    store = ingest(flags.data, folder, options)
    if not flags.quiet:
        print(printable(summary.text(store)), file=sys.stderr)
    return store
