"""`scot plan fit`: from an experiment without and with a remedy to the fit that its forecasts rest on."""

from __future__ import annotations

import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from scotfree.study.commands import ingest
from scotfree.study.plan import calls as calls_of
from scotfree.study.plan import fit
from scotfree.study.plan.commands.price import FITS, open_study
from scotfree.study.trouble import StudyError

HELP = "fit a remedy's forecast on calls made on this machine, without and with it in turns"
EXAMPLES = """\
  scot plan fit baseline-*.jsonl --remedy remedy-*.jsonl -o fits/persist.json
How such calls are recorded: docs/plan.md"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="BASELINE", help="calls without the remedy")
    parser.add_argument(
        "--remedy", type=Path, nargs="+", required=True, metavar="REMEDY", help="the same calls with it"
    )
    parser.add_argument("-o", "--output", type=Path, default=FITS / "persist.json", help="(default: %(default)s)")
    ingest.add_reading(parser)


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
        baseline = _calls(flags, flags.data, Path(scratch) / "baseline")
        remedy = _calls(flags, flags.remedy, Path(scratch) / "remedy", baseline.method)
    found = fit.fit(baseline, remedy)
    fit.write(found, flags.output)
    print(f"{flags.output}: {found.in_words}; from {found.remedy_calls:,} calls")
    return 0


def _calls(flags: Namespace, data: list[Path], scratch: Path, method: str | None = None) -> calls_of.Calls:
    """Of that method or the one that takes most time.

    Of an experiment with several, another may take most time with the remedy than without it.
    """
    study = open_study(flags, data, scratch)
    only = None if method is None else [name for name in calls_of.names(study) if name[1] == method]
    found = list(calls_of.methods(study, 1, only))
    if not found:
        which = "no method" if method is None else f"{method}, which takes most time without the remedy, never"
        raise StudyError(f"fit on {data[0]}: {which} has 100 successful calls", "name the experiment's traces")
    return found[0]
