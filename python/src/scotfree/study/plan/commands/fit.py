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
  scot plan fit baseline-*.jsonl --remedy remedy-*.jsonl -o fits/persist.json"""


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
        remedy = _calls(flags, flags.remedy, Path(scratch) / "remedy")
    found = fit.fit(baseline, remedy)
    fit.write(found, flags.output)
    print(f"{flags.output}: {found.in_words}; from {found.remedy_calls:,} calls")
    return 0


def _calls(flags: Namespace, data: list[Path], scratch: Path) -> calls_of.Calls:
    """Of the method that takes most time: an experiment has one."""
    found = list(calls_of.methods(open_study(flags, data, scratch), 1))
    if not found:
        raise StudyError(f"fit on {data[0]}: no method has 100 successful calls", "name the experiment's traces")
    return found[0]
