"""`scot study ingest`: from data to a store, which other commands read."""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from scotfree.study.ingest import summary
from scotfree.study.ingest.forms import READERS
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.run import ingest
from scotfree.study.store import Store
from scotfree.study.trouble import printable

# Far above any machine's: more would only be started.
_THREADS_MAX = 1024
HELP = "read DATA into a store, once for all that asks of it"
EXAMPLES = """\
  scot study ingest traces/ --store fleet.store       goes on where it was if it was interrupted
  scot study ingest a.json b.json --store x --form jaeger"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, or folders of them")
    parser.add_argument("--store", type=Path, required=True, metavar="FOLDER", help="where the store is made")
    add_reading(parser)


def add_reading(parser: ArgumentParser) -> None:
    """The flags of how inputs are read."""
    forms = sorted(reader.form for reader in READERS)
    parser.add_argument("--form", choices=forms, help="of all inputs (default: each is looked at)")
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OURS=THEIRS",
        help="which column of Parquet is what, also OURS=THEIRS:UNIT, or a file of TOML (again for more)",
    )
    parser.add_argument("--replace", action="store_true", help="a store of other data becomes one of this")
    default = Limits()
    parser.add_argument(
        "--memory",
        type=_memory,
        default=default.memory,
        help="for joins; the rest takes up to some 1.5 GB beside (default: %(default)s)",
    )
    parser.add_argument("--threads", type=_threads, default=default.threads, help="(default: %(default)s)")
    parser.add_argument("--quiet", action="store_true", help="no progress, no summary")


def _memory(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]+)? ?([KMGT]i?)?B", text, re.IGNORECASE):
        raise ArgumentTypeError(f"{text} is no size of memory, such as 2GB")
    return text


def _threads(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= _THREADS_MAX:
        raise ArgumentTypeError(f"{text} is no number from 1 to {_THREADS_MAX}")
    return int(text)


def run(flags: Namespace) -> int:
    """Does it."""
    read(flags, flags.store)
    return 0


def read(flags: Namespace, folder: Path, *, replaces: bool = False) -> Store:
    """The store of what the flags name; says what became of it unless it is to be quiet."""
    options = Options(
        flags.form,
        ColumnMap.given(flags.map),
        Limits(flags.memory, flags.threads),
        quiet=flags.quiet,
        replaces=replaces or flags.replace,
    )
    store = ingest(flags.data, folder, options)
    if not flags.quiet:
        print(printable(summary.text(store)), file=sys.stderr)
    return store
