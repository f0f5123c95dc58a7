"""`scot study compare A B`: what changed between two data sets, edge by edge, and whether it leaves its budget."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scotfree.study.analysis.extent import extent
from scotfree.study.analysis.study import Study
from scotfree.study.commands import ingest
from scotfree.study.edges import compare as edges
from scotfree.study.edges import read, text, times
from scotfree.study.edges.read import Side
from scotfree.study.edges.times import Span
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.words import called, counted, duration, percent
from scotfree.study.plan.calls import Calls, Name, methods, names
from scotfree.study.plan.compare import Budget, Change, Compared, budget_of, budgets, compare
from scotfree.study.plan.text import table
from scotfree.study.store import MANIFEST, Store
from scotfree.study.trouble import StudyError, printable
from scotfree.study.working import Working


@dataclass(frozen=True)
class _ByMethod:
    """What budgets are about: methods with enough calls in both."""

    both: list[Compared]
    alone: dict[str, list[Name]]
    is_judged: bool

    @property
    def leaving(self) -> list[Compared]:
        """Those that leave their budget."""
        return [one for one in self.both if one.leaves]


def run(flags: Namespace) -> int:
    """Does it; 1 if something is worse or, with a budget, if a method leaves it."""
    judges = budgets(flags.budget) if flags.budget else []
    if flags.b is None and flags.baseline is None:
        raise StudyError(
            f"compare {flags.a} with nothing", "name a second data set, or an earlier range by --baseline"
        )
    with (
        tempfile.TemporaryDirectory(prefix="scot-compare-") as scratch,
        Working(quiet=flags.quiet) as at,
    ):
        a, b = _sides(flags, Path(scratch), at)
        at.at(f"comparing {a.calls:,} calls with {b.calls:,}")
        by_edge = edges.compare(a, b, least_ns=flags.least)
        by_method = _by_method(flags, judges, a, b) if judges or flags.json else None
    if not judges and not by_edge.is_comparable:
        raise StudyError(*_nothing(flags, by_edge))
    # The verdict is the same if nobody reads on.
    with suppress(BrokenPipeError):
        if flags.json:
            print(json.dumps(_json(by_edge, by_method, a, b), indent=1))
        else:
            budget = _text(by_method) if by_method else []
            named = (str(flags.a), str(flags.b or flags.a))
            print(printable("\n".join([*budget, *text.lines(by_edge, a, b, named)])))
    if by_method and judges:
        return 1 if by_method.leaving else 0
    return 1 if by_edge.is_worse else 0


def _nothing(flags: Namespace, found: edges.Comparison) -> tuple[str, str]:
    what = f"compare {flags.a} and {flags.b or flags.a}"
    if not found.edges:
        return f"{what}: no method of one is in the other", "give data of the same services"
    most = max(found.edges, key=lambda edge: min(edge.a.calls, edge.b.calls))
    few = f"{counted(most.a.calls, 'call')} beside {most.b.calls:,} of {text.name(most.edge)} at most"
    return f"{what}: too few to tell: {few}", "give more calls, or longer ranges"


def _sides(flags: Namespace, scratch: Path, at: Working) -> tuple[Side, Side]:
    # Of one data set all that follows its baseline, unless it is said.
    follows = flags.b is None and flags.from_ is None
    later = Span(flags.baseline.end if follows else flags.from_, flags.to)
    a = _study(flags, flags.a, scratch / "a")
    b = Study(a.store, _engine(flags, a.store)) if flags.b is None else _study(flags, flags.b, scratch / "b")
    at.at("counting the calls of each edge")
    asked = (later if flags.baseline is None else flags.baseline, later)
    names_ = (str(flags.a), str(flags.b or flags.a))
    found = [_side(study, span, name) for study, span, name in zip((a, b), asked, names_, strict=True)]
    if flags.b is None:
        _refuse_overlap(*found)
    return found[0], found[1]


def _side(study: Study, asked: Span, name: str) -> Side:
    whole_ = extent(study)
    if whole_.first_ns is None or whole_.last_ns is None:
        raise StudyError(f"compare {name}: it has no call", "give traces of calls")
    within = times.resolved(asked, whole_.first_ns, whole_.last_ns, name) if asked else None
    read.limit(study, within)
    side = read.side(study, within)
    if not side.calls:
        raise StudyError(
            f"compare {name}: no call starts in that range",
            f"its calls start from {times.said(whole_.first_ns)} to {times.said(whole_.last_ns)}",
        )
    return side


def _refuse_overlap(a: Side, b: Side) -> None:
    """Calls beside themselves differ in nothing."""
    if a.range and (not b.range or (a.range.from_ns < b.range.to_ns and b.range.from_ns < a.range.to_ns)):
        raise StudyError(
            f"compare {times.said(a.range.from_ns)} to {times.said(a.range.to_ns)} with a range that overlaps it",
            "give ranges apart: --baseline FROM..TO --from T --to T",
        )


def _json(by_edge: edges.Comparison, by_method: _ByMethod | None, a: Side, b: Side) -> dict[str, Any]:
    found = text.as_json(by_edge, a, b)
    if by_method is None:
        return found
    rows = [asdict(one) | {"leaves": one.leaves} for one in by_method.both]
    return {"leaves": bool(by_method.leaving), "methods": rows, **by_method.alone} | found


def _by_method(flags: Namespace, judges: list[Budget], a: Side, b: Side) -> _ByMethod:
    in_a, in_b = (names(side.study) for side in (a, b))
    chosen = _chosen(in_a, in_b, flags.methods)
    of_a, of_b = (_methods(side.study, chosen) for side in (a, b))
    both = [_one(of_a[key], of_b[key], judges) for key in of_a]
    if judges and not both:
        raise StudyError(
            f"compare {flags.a} and {flags.b or flags.a}: no method has 100 successful calls in both",
            "give data of the same services",
        )
    if judges and not any(one.is_judged for one in both):
        raise StudyError(
            f"judge by {flags.budget}: of {counted(len(both), 'method')} in both none is judged, for want of a "
            "budget whose pattern matches, of calls, or of what it bounds",
            "mend its patterns or samples_min (docs/plan.md), or give more calls",
        )
    all_a, all_b = ({(edge.server, edge.method) for edge in side.counts} for side in (a, b))
    alone = {"only_in_a": sorted(all_a - all_b), "only_in_b": sorted(all_b - all_a)}
    return _ByMethod(both, alone, bool(judges))


def _study(flags: Namespace, data: Path, scratch: Path) -> Study:
    store = _store(flags, data, scratch)
    return Study(store, _engine(flags, store))


def _engine(flags: Namespace, store: Store) -> DuckEngine:
    return DuckEngine(store, memory=flags.memory, threads=flags.threads)


def _methods(study: Study, chosen: set[Name]) -> dict[Name, Calls]:
    return {(one.service, one.method): one for one in methods(study, len(chosen), chosen)}


def _chosen(in_a: list[Name], in_b: list[Name], limit: int) -> set[Name]:
    """Of the methods in both those that take most time in either: what has grown most may have been little."""
    both = set(in_a) & set(in_b)
    return {name for names_ in (in_a, in_b) for name in [name for name in names_ if name in both][:limit]}


def _store(flags: Namespace, data: Path, scratch: Path) -> Store:
    """A store, the one of a report's page, or data read into one: never a store that only has a like name."""
    folder = data.with_suffix(".store") if data.suffix == ".html" else data
    if (folder / MANIFEST).exists():
        return Store.open(folder)
    return ingest.read(Namespace(**(vars(flags) | {"data": [data]})), scratch)


def _one(a: Calls, b: Calls, judges: list[Budget]) -> Compared:
    return compare(a, b, budget_of(a.service, a.method, judges))


def _text(found: _ByMethod) -> list[str]:
    lines = [
        f"{called(one.service, one.method)} leaves its budget: {change.measure} {_value(change, change.a)} -> "
        f"{_value(change, change.b)} ({change.breaks})."
        for one in found.leaving
        for change in one.changes
        if change.breaks
    ]
    if not found.leaving:
        judged = sum(one.is_judged for one in found.both)
        others = f"; {counted(len(found.both) - judged, 'method')} not judged" if judged < len(found.both) else ""
        lines.append(f"Within budget: {counted(judged, 'method')}{others}.")
    head = ("method", "", "A", "B", "growth", "95 % interval", "")
    rows = [_row(one, change) for one in found.both for change in one.changes]
    return [*lines, "", *table([head, *rows]), ""]


def _row(one: Compared, change: Change) -> tuple[str, ...]:
    is_noise = change.low <= 0 <= change.high
    verdict = f"leaves {change.breaks}" if change.breaks else "within the noise" if is_noise else ""
    return (
        called(one.service, one.method),
        change.measure,
        _value(change, change.a),
        _value(change, change.b),
        f"{change.growth * 100:+.1f} %",
        f"{change.low * 100:+.1f} to {change.high * 100:+.1f} %",
        verdict,
    )


def _value(change: Change, value: float) -> str:
    return percent(value) if change.measure == "tax_share" else duration(value)
