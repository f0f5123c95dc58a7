"""`scot plan fit`: from an experiment without and with a remedy to the fit that its forecasts rest on."""

from __future__ import annotations

import tempfile
from argparse import Namespace
from glob import escape
from pathlib import Path

from scotfree.study.plan import calls as calls_of
from scotfree.study.plan import fit
from scotfree.study.plan.commands.price import open_study
from scotfree.study.plan.pattern import matches
from scotfree.study.trouble import StudyError


def run(flags: Namespace) -> int:
    """Does it."""
    # A wrong name is told before data is read for minutes.
    fit.check(flags.output)
    both = {path.resolve() for path in flags.data} & {path.resolve() for path in flags.remedy}
    if both:
        raise StudyError(
            f"fit on {min(both)}: it is given as calls without the remedy and with it",
            "name the traces of the turns without the remedy first, those with it after --remedy",
        )
    with tempfile.TemporaryDirectory(prefix="scot-plan-") as scratch:
        baseline = _calls(flags, flags.data, Path(scratch) / "baseline", flags.method)
        # The services of both sides may be called otherwise.
        remedy = _calls(flags, flags.remedy, Path(scratch) / "remedy", escape(baseline.method))
    found = fit.fit(baseline, remedy)
    fit.write(found, flags.output)
    print(f"{flags.output}: {baseline.method}: {found.in_words}; from {found.remedy_calls:,} calls")
    return 0


def _calls(flags: Namespace, data: list[Path], scratch: Path, pattern: str | None) -> calls_of.Calls:
    """Of the method that matches, or of the one that takes most time.

    Of an experiment with several, another may take most time with the remedy than without it.
    """
    study = open_study(flags, data, scratch)
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
