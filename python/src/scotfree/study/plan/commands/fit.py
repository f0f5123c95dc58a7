"""`scot plan fit`: from an experiment without and with a remedy to the fit that its forecasts rest on."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from dataclasses import replace
from glob import escape
from pathlib import Path

from scotfree.study.plan import calls as calls_of
from scotfree.study.plan import fit, here
from scotfree.study.plan.commands.price import open_study
from scotfree.study.plan.pattern import matches
from scotfree.study.trouble import StudyError
from scotfree.study.working import Working


def run(flags: Namespace) -> int:
    """Does it."""
    # A wrong name is told before data is read for minutes.
    fit.check(flags.output)
    _check(flags)
    with tempfile.TemporaryDirectory(prefix="scot-plan-") as scratch:
        method, found = _here(flags, Path(scratch)) if flags.here else _fit(flags, Path(scratch))
    fit.write(found, flags.output)
    print(f"{flags.output}: {method}: {found.in_words}; from {found.remedy_calls:,} calls")
    return 0


def _check(flags: Namespace) -> None:
    """That there is either --here or data of both sides, each other's not."""
    if flags.here and (flags.data or flags.remedy or flags.method):
        raise StudyError(
            "fit --here: traces or a method are named as well",
            "leave them out: --here makes calls of its own; or leave out --here",
        )
    if not flags.here and not (flags.data and flags.remedy):
        missing = "calls with the remedy (--remedy)" if flags.data else "calls without the remedy"
        raise StudyError(
            f"fit: {missing} are missing",
            "scot plan fit BASELINE… --remedy REMEDY…, or let it make calls on this machine: scot plan fit --here",
        )
    both = {path.resolve() for path in flags.data} & {path.resolve() for path in flags.remedy}
    if both:
        raise StudyError(
            f"fit on {min(both)}: it is given as calls without the remedy and with it",
            "name the traces of the turns without the remedy first, those with it after --remedy",
        )


def _here(flags: Namespace, scratch: Path) -> tuple[str, fit.Fit]:
    """Of calls that are made now, and kept nowhere."""
    recorded = here.record(scratch / "calls", flags.plane, flags.service)
    named = vars(flags) | {"data": [recorded.baseline], "remedy": [recorded.remedy], "method": "SET"}
    method, found = _fit(Namespace(**named), scratch)
    return method, replace(found, about=recorded.about)


def _fit(flags: Namespace, scratch: Path) -> tuple[str, fit.Fit]:
    """The method and its fit."""
    baseline = _calls(flags, flags.data, scratch / "baseline", flags.method)
    # The services of both sides may be called otherwise.
    remedy = _calls(flags, flags.remedy, scratch / "remedy", escape(baseline.method))
    return baseline.method, fit.fit([(baseline, remedy)])


def _calls(flags: Namespace, data: list[Path], scratch: Path, pattern: str | None) -> calls_of.Calls:
    """Of the method that matches, or of the one that takes most time.

    Of an experiment with several, another may take most time with the remedy than without it.
    """
    study = open_study(flags, data, scratch)
    with Working("looking at all calls", quiet=flags.quiet):
        among = calls_of.names(study)
        only = None if pattern is None else [name for name in among if matches(pattern, *name)]
        found = list(calls_of.methods(study, 1, only))
    if not found:
        which = "no method" if pattern is None else f"no method that matches {pattern}"
        there = f"; those that have are {', '.join(sorted({name for _, name in among}))}" if among else ""
        raise StudyError(
            f"fit on {data[0]}: {which} has 100 successful calls{there}", "name the traces of one experiment"
        )
    return found[0]
