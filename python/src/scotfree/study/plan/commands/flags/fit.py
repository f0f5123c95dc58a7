"""`scot plan fit`: from an experiment without and with a remedy to the fit that its forecasts rest on."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.study.commands.flags import reading
from scotfree.study.plan.commands.flags.price import FITS

HELP = "fit a remedy's forecast on calls made on this machine, without and with it in turns"
EXAMPLES = """\
  scot plan fit --here                        makes the calls as well, on this machine, in half a minute
  scot plan fit baseline-*.jsonl --remedy remedy-*.jsonl -o fits/persist.json
  scot plan fit baseline.jsonl --remedy remedy.jsonl --method SET
How such calls are recorded: docs/plan.md"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="*", metavar="BASELINE", help="calls without the remedy")
    parser.add_argument(
        "--remedy", type=Path, nargs="+", default=[], metavar="REMEDY", help="the same calls with it"
    )
    parser.add_argument(
        "--here",
        action="store_true",
        help="make SETs on this machine, without and with a device, in namespaces of their own, and fit on them",
    )
    parser.add_argument(
        "--plane",
        choices=("auto", "user", "xdp"),
        default="auto",
        help="of the device of --here: a process, programs in the kernel, or these where they run "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--service",
        choices=("auto", "redis", "kv"),
        default="auto",
        help="what serves there: Redis where it is installed, else the embedded server (default: %(default)s)",
    )
    parser.add_argument(
        "--method",
        metavar="PATTERN",
        help="the method, as SET or Cart.* (default: the one that takes most time without the remedy)",
    )
    parser.add_argument("-o", "--output", type=Path, default=FITS / "persist.json", help="(default: %(default)s)")
    reading.add(parser)


run = later("scotfree.study.plan.commands.fit")
