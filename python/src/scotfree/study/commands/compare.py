"""`scot study compare A B`: what changed between two data sets, and whether it leaves its budget."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from scotfree.study.analysis.study import Study
from scotfree.study.commands import ingest
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.words import called, counted, duration, percent
from scotfree.study.plan.calls import Calls, Name, methods, names
from scotfree.study.plan.compare import Budget, Change, Compared, budget_of, budgets, compare
from scotfree.study.plan.text import table
from scotfree.study.store import MANIFEST, Store
from scotfree.study.trouble import StudyError, printable


def run(flags: Namespace) -> int:
    """Does it; 1 if a method leaves its budget."""
    judges = budgets(flags.budget) if flags.budget else []
    with tempfile.TemporaryDirectory(prefix="scot-compare-") as scratch:
        studies = [_study(flags, data, Path(scratch) / name) for name, data in (("a", flags.a), ("b", flags.b))]
        in_a, in_b = (names(study) for study in studies)
        chosen = _chosen(in_a, in_b, flags.methods)
        a, b = (_methods(study, chosen) for study in studies)
    both = [_one(a[key], b[key], judges) for key in a]
    if not both:
        raise StudyError(
            f"compare {flags.a} and {flags.b}: no method has 100 successful calls in both",
            "give data of the same services",
        )
    if judges and not any(one.is_judged for one in both):
        raise StudyError(
            f"judge by {flags.budget}: of {counted(len(both), 'method')} in both none is judged, for want of a "
            "budget whose pattern matches, of calls, or of what it bounds",
            "mend its patterns or samples_min (docs/plan.md), or give more calls",
        )
    alone = {
        "only_in_a": sorted(set(in_a) - set(in_b)),
        "only_in_b": sorted(set(in_b) - set(in_a)),
    }
    leaving = [one for one in both if one.leaves]
    # The verdict is the same if nobody reads on.
    with suppress(BrokenPipeError):
        if flags.json:
            rows = [asdict(one) | {"leaves": one.leaves} for one in both]
            print(json.dumps({"leaves": bool(leaving), "methods": rows, **alone}, indent=1))
        else:
            print(printable("\n".join(_text(both, leaving, is_judged=bool(judges), alone=alone))))
    return 1 if leaving else 0


def _study(flags: Namespace, data: Path, scratch: Path) -> Study:
    store = _store(flags, data, scratch)
    return Study(store, DuckEngine(store, memory=flags.memory, threads=flags.threads))


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


def _text(
    both: list[Compared], leaving: list[Compared], *, is_judged: bool, alone: dict[str, list[tuple[str, str]]]
) -> list[str]:
    lines = [
        f"{called(one.service, one.method)} leaves its budget: {change.measure} {_value(change, change.a)} -> "
        f"{_value(change, change.b)} ({change.breaks})."
        for one in leaving
        for change in one.changes
        if change.breaks
    ]
    if is_judged and not leaving:
        judged = sum(one.is_judged for one in both)
        others = f"; {counted(len(both) - judged, 'method')} not judged" if judged < len(both) else ""
        lines.append(f"Within budget: {counted(judged, 'method')}{others}.")
    lines += [
        f"{counted(len(names), 'method')} {where.replace('_', ' ').replace(' a', ' A').replace(' b', ' B')}: "
        f"{', '.join(called(*name) for name in names[:3])}{' …' if len(names) > 3 else ''}."
        for where, names in alone.items()
        if names
    ]
    head = ("method", "", "A", "B", "growth", "95 % interval", "")
    rows = [_row(one, change) for one in both for change in one.changes]
    return [*lines, *([""] if lines else []), *table([head, *rows])]


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
