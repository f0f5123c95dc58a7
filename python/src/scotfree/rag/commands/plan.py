"""`scot rag plan`: which exact values are worth their room on this machine, for these questions."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Final

from scotfree.numbers import whole
from scotfree.rag.commands import opening
from scotfree.rag.evaluation.progress import Shown
from scotfree.rag.placement import sample
from scotfree.rag.placement.budget import Budget
from scotfree.rag.placement.costs import Figures
from scotfree.rag.placement.planner import Plan, Planner, size
from scotfree.trouble import printable

HELP = "choose what to keep of embeddings, within memory, storage and latency"
EXAMPLES = """\
  scot rag plan                                                what more storage would bring
  scot rag plan --memory 400MB --storage 4% --latency 250ms    the smallest plan that meets them
  scot rag plan --storage 10% --questions asked.txt --apply    make it so, and measure it"""
_COUNT_MAX: Final = 1000
# A budget that cannot be met.
_NOT_MET: Final = 1
_HEAD: Final = ("storage", "of flat", "no codes", "memory", "median", "95 of 100")
# What is to be known of a plan.
_FEWER_FOUND: Final = (
    "of clusters without codes a search looks through the nearest alone, and embeds all that is in them: it takes "
    "longer, and of what is nearest it misses up to 6 in 100"
)
_ROWS_GO: Final = (
    "to apply it takes rows away that the index has: searches then embed passages again; leave --latency out, or "
    "give more --storage, to keep them"
)
_NOT_APART: Final = "so few questions both choose and are predicted: others will take longer"


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    opening.add(parser)
    parser.add_argument("--memory", metavar="SIZE", help="of a process that searches, model included, as 400MB")
    parser.add_argument(
        "--storage", metavar="SIZE", help="of codes and exact values, as 12MB or 4%% of embeddings as floats"
    )
    parser.add_argument("--latency", metavar="TIME", help="within which 95 of 100 searches end, as 250ms")
    parser.add_argument(
        "--questions", type=Path, metavar="FILE", help="a sample, one a line (default: sentences of passages)"
    )
    parser.add_argument(
        "--count", type=whole(1, _COUNT_MAX), default=10, help="passages a search looks for (default: %(default)s)"
    )
    parser.add_argument(
        "--apply", action="store_true", help="make it so, then measure it beside what was predicted"
    )
    parser.add_argument("--calibrate", action="store_true", help="measure this machine anew")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(flags: Namespace) -> int:
    """Does it; 1 if the budget cannot be met."""
    budget = Budget(flags.memory, flags.storage, flags.latency)
    questions = sample.read(flags.questions) if flags.questions else None
    progress = Shown(is_quiet=flags.json)
    with opening.opened(flags) as index:
        if flags.apply and index.changes:
            # It is applied to all there is, so it is to be planned for that.
            index.compact(is_forced=True)
        with progress.wait("searching for a sample of questions"):
            planner = Planner(index, questions, count=flags.count, is_calibrated_anew=flags.calibrate)
            plan = planner.plan(budget)
        if not flags.json:
            print(printable("\n".join(_told(planner, plan))))
        measured = None
        if flags.apply:
            with progress.wait("keeping what was chosen, and searching again"):
                embedded = index.place(plan.placement)
                measured = planner.measured()
            print(f"{embedded:,} passages embedded", file=sys.stderr)
    if flags.json:
        figures = asdict(measured) if measured else None
        more = {"rates": asdict(planner.rates), "correction": planner.costs.correction, "measured": figures}
        print(json.dumps(plan.written() | more, indent=1))
    elif measured:
        print("\n".join(_beside(plan.predicted, measured)))
    return _NOT_MET if plan.missing else 0


def _told(planner: Planner, plan: Plan) -> list[str]:
    kept = plan.placement
    questions = len({one.question for one in (*planner.choosing, *planner.checking)})
    return [
        *planner.rates.shown(),
        f"{questions:,} questions; a search wants exact values of {planner.asked:.1f} passages; "
        f"embedding took {planner.costs.correction:.2f} times what was calibrated",
        "",
        _row(_HEAD),
        *(_figures(figures, plan.flat_bytes) for figures in plan.frontier),
        "",
        f"plan: exact values of {len(kept.kept):,} clusters of {len(planner.costs.passages):,} on the disk, "
        f"of {len(kept.memory):,} also in memory" + (f"; no codes of {len(kept.bare):,}" if kept.bare else ""),
        _figures(plan.predicted, plan.flat_bytes),
        *([_ROWS_GO] if planner.takes_rows_away(plan) else []),
        *([_FEWER_FOUND] if kept.bare else []),
        *([] if planner.is_apart else [_NOT_APART]),
        *(f"not met: {missing}" for missing in plan.missing),
        *(["this is the nearest plan; what no plan can meet is left aside"] if plan.missing else []),
    ]


def _figures(figures: Figures, flat_bytes: int) -> str:
    storage, *others = _shown(figures)
    return _row((storage, f"{figures.storage_bytes / flat_bytes:.1%}", f"{figures.bare:,}", *others))


def _shown(figures: Figures) -> tuple[str, ...]:
    """Storage, memory, median, the slowest but five in a hundred."""
    sizes = (size(value) for value in (figures.storage_bytes, figures.memory_bytes))
    return (*sizes, f"{figures.median_s * 1e3:,.0f} ms", f"{figures.p95_s * 1e3:,.0f} ms")


def _beside(predicted: Figures, measured: Figures) -> list[str]:
    names = {"storage": "storage_bytes", "memory": "memory_bytes", "median": "median_s", "95 of 100": "p95_s"}
    errors = [getattr(predicted, field) / getattr(measured, field) - 1 for field in names.values()]
    parts = zip(names, _shown(predicted), _shown(measured), errors, strict=True)
    rows = [_row((name, before, after, f"{error:+.1%}")) for name, before, after, error in parts]
    return ["", _row(("", "predicted", "measured", "error")), *rows]


def _row(cells: tuple[str, ...]) -> str:
    return "".join(f"{cell:>12}" for cell in cells)
