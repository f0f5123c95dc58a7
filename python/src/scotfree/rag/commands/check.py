"""`scot rag check`: whether an index is whole, and what its searches find of the nearest passages."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from scotfree.numbers import amount
from scotfree.rag.commands import opening
from scotfree.rag.damage import REMADE
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.index import Index
from scotfree.rag.placement import sample
from scotfree.rag.placement.planner import size
from scotfree.rag.sampling import Measured
from scotfree.rag.trouble import Damaged
from scotfree.trouble import printable

HELP = "see whether an index is whole, and how much of the nearest its searches find"
EXAMPLES = """\
  scot rag check                                   with questions drawn from your texts
  scot rag check --mend                            makes anew what is damaged or lost of codes and rows
  scot rag check --questions asked.txt             with your own, one a line
  scot rag check --questions asked.txt --hold 0.995    has searches find that much of what is near to them"""
_FOUND_MAX: Final = 0.99999
# It is damaged, or finds less than it is to.
_SHORT: Final = 1
_FLOAT_BYTES: Final = 4
# Of fewer questions a share says little.
_FEW_MAX: Final = 30
_FEW: Final = ("so few questions say little of others",)


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    opening.add(parser)
    parser.add_argument(
        "--questions", type=Path, metavar="FILE", help="one a line (default: drawn from the index's own texts)"
    )
    parser.add_argument(
        "--hold",
        type=amount(0.01, _FOUND_MAX),
        metavar="SHARE",
        help="have searches find so much of the ten nearest from now on, by these questions",
    )
    parser.add_argument(
        "--mend",
        action="store_true",
        help="make codes and rows anew that are damaged or lost, from what else there is; passages of which there "
        "is no row are embedded again",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(flags: Namespace) -> int:
    """Does it; 1 if the index is damaged or finds less than it is to."""
    try:
        return _checked(flags)
    except Damaged as error:
        # It is so damaged that it cannot be opened.
        folder = str(flags.index or opening.default())
        if flags.json:
            print(
                json.dumps(
                    {"index": folder, "passages": None, "damages": [str(error)], "measured": None}, indent=1
                )
            )
        else:
            print(printable(f"{folder} is damaged:\n  {error}"))
        return _SHORT


def _checked(flags: Namespace) -> int:
    questions = sample.read(flags.questions) if flags.questions else None
    shown = Shown(is_quiet=flags.json)
    with opening.opened(flags, mends=flags.mend) as index:
        if flags.mend:
            with shown.wait("making anew what is damaged"):
                embedded = index.mend()
            if not flags.json:
                print(f"{embedded:,} passages were embedded again", file=sys.stderr)
        with shown.wait("reading all of it"):
            damages = index.damages()
        with shown.wait("searching" if index.embeds_nothing else "searching, and embedding passages again"):
            if flags.hold is not None and not damages:
                index.hold(flags.hold, questions)
            began = time.perf_counter()
            measured = None if damages else index.measured(questions)
            took_s = time.perf_counter() - began
        if flags.json:
            print(json.dumps(_written(index, damages, measured), indent=1))
        else:
            print(printable("\n".join(_told(index, damages, measured))))
    if not flags.json and measured and flags.questions is None:
        print(f"{measured.questions} questions were drawn from your texts; {took_s:.1f} s", file=sys.stderr)
    return _SHORT if damages or (measured and not measured.is_held) else 0


def _written(index: Index, damages: list[str], measured: Measured | None) -> dict[str, Any]:
    return {
        "index": str(index.folder),
        "passages": len(index),
        "damages": damages,
        "measured": asdict(measured) | {"is_held": measured.is_held} if measured else None,
    }


def _told(index: Index, damages: list[str], measured: Measured | None) -> list[str]:
    if damages:
        return [
            f"{index.folder} is damaged:",
            *(f"  {one}" for one in damages),
        ]
    lines = [f"{index.folder}: {len(index):,} passages of {len(index.documents()):,} documents", *_sizes(index)]
    if measured is None:
        return [
            *lines,
            "whole, but not built to its end: searches compare all passages; `scot rag index` with the same "
            "folders ends it",
        ]
    verdict = "held" if measured.is_held else "NOT HELD"
    return [
        *lines,
        f"whole; searches find {measured.found.recall:.3f} of the ten nearest passages; {measured.target} is "
        f"wanted: {verdict} ({measured.questions} questions)",
        *(_FEW if measured.questions < _FEW_MAX else ()),
        "",
        "to find     a search takes exact values of" + ("" if index.embeds_nothing else " (each embedded again)"),
        *(f"  {one.target:<10.5g}{one.exact:>8,.1f} passages" for one in measured.others),
        *([] if measured.is_held else [_mend(measured)]),
    ]


def _mend(measured: Measured) -> str:
    if any(one.target >= measured.target for one in measured.others):
        return f"`scot rag check --hold {measured.target}`, with the same questions, holds it"
    return "no bound holds that: ask for less, or make an index with more bits a dimension"


def _sizes(index: Index) -> list[str]:
    found = index.snapshot()
    if found is None:
        return []
    path, snapshot = found
    flat = max(1, snapshot.rows * snapshot.dimensions * _FLOAT_BYTES)
    codes, rows = path.stat().st_size, index.stored.file_bytes
    kept = f"; rows on the disk take {size(rows)}, {rows / flat:.1%}" if rows else "; no rows"
    if index.stored.is_lost:
        kept = f"; the file of its rows, {index.stored.name}, is gone: {REMADE}"
    return [f"codes of {snapshot.bits} bits take {size(codes)}, {codes / flat:.1%} of embeddings as floats{kept}"]
