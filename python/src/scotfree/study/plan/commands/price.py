"""`scot plan DATA…`: prices every remedy on the user's own calls."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from scotfree.numbers import amount, whole
from scotfree.study.analysis.study import Study
from scotfree.study.commands import ingest
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.words import called, counted
from scotfree.study.plan import fit, registry, text
from scotfree.study.plan.calls import Name, names
from scotfree.study.plan.context import Context
from scotfree.study.plan.forecasts import make
from scotfree.study.plan.pattern import matches
from scotfree.study.store import MANIFEST, Store
from scotfree.study.trouble import StudyError, printable

HELP = "forecast what every remedy would leave of the calls in DATA (the default command)"
EXAMPLES = """\
  scot plan traces/                           every remedy on the 20 methods that take most time
  scot plan report.store --updates 'Cart.*'   which methods are updates; else by their names
  scot plan traces/ --json | jq .prices       for scripts"""
FITS = Path("fits")


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, folders of them, or one store")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="where the store is made (default: nowhere)")
    parser.add_argument(
        "--updates",
        action="append",
        default=[],
        metavar="PATTERN",
        help="methods that are updates, as Cart.* (again for more; default: by their names)",
    )
    parser.add_argument("--fits", type=Path, default=FITS, metavar="FOLDER", help="(default: %(default)s)")
    parser.add_argument(
        "--one-machine",
        action=BooleanOptionalAction,
        default=None,
        help="callers, device and servers share one machine (default: as the calls say)",
    )
    parser.add_argument(
        "--log-slots", type=whole(0, 2**40), metavar="COUNT", help="of the device's log (default: enough)"
    )
    default = Context()
    for flag, bounds, of, meaning in (
        ("--hedges-max", (0, 1), default.hedges_max, "share of calls that may be hedges"),
        ("--compression-ratio", (1, 1e6), default.compression_ratio, "bytes over compressed bytes"),
        ("--compress-ns-per-byte", (0, 1e9), default.compress_ns_per_byte, "work of both sides"),
    ):
        parser.add_argument(
            flag, type=amount(*bounds), default=of, metavar="NUMBER", help=f"{meaning} (default: %(default)s)"
        )
    parser.add_argument(
        "--methods",
        type=whole(1, 1_000_000),
        default=20,
        metavar="COUNT",
        help="those that take most time (default: %(default)s)",
    )
    ingest.add_reading(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(flags: Namespace) -> int:
    """Does it."""
    context = _context(flags)
    with tempfile.TemporaryDirectory(prefix="scot-plan-") as scratch:
        study = open_study(flags, flags.data, Path(scratch) / "store")
        check_patterns(context.updates, names(study))
        plan = make(study, context, flags.methods)
    print(json.dumps(plan.to_json(), indent=1) if flags.json else printable(text.plan(plan)))
    return 0


def open_study(flags: Namespace, data: list[Path], scratch: Path) -> Study:
    """A study of a store, or of data that are read into one."""
    if len(data) == 1 and (data[0] / MANIFEST).exists():
        store = Store.open(data[0])
    else:
        store = ingest.read(Namespace(**(vars(flags) | {"data": data})), getattr(flags, "store", None) or scratch)
    return Study(store, DuckEngine(store, memory=flags.memory, threads=flags.threads))


def check_patterns(patterns: Sequence[str], among: Sequence[Name]) -> None:
    """A `StudyError` says which pattern of `--updates` is no method's: it would make all of them reads."""
    for pattern in patterns:
        if among and not any(matches(pattern, *name) for name in among):
            raise StudyError(
                f"plan with --updates {pattern}: none of {counted(len(among), 'method')} matches",
                f"match a method, service.method or 'service method', case counting, such as {called(*among[0])}",
            )


def _context(flags: Namespace) -> Context:
    context = Context(
        updates=tuple(flags.updates),
        is_one_machine=flags.one_machine,
        log_slots=flags.log_slots,
        hedges_max=flags.hedges_max,
        compression_ratio=flags.compression_ratio,
        compress_ns_per_byte=flags.compress_ns_per_byte,
    )
    fits, missing = {}, {}
    for name in registry.entries():
        try:
            fits[name] = fit.find(flags.fits, name, datetime.now(UTC))
        except StudyError as error:
            missing[name] = str(error)
    return replace(context, fits=fits, missing=missing)
