"""`scot study fleet`: a synthetic fleet with known truth, for tests and benchmarks."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from scotfree.study.fleet import FleetOptions, generate

HELP = "make the calls, metrics and profiles of a synthetic fleet"
EXAMPLES = """\
  scot study fleet --spans 1000000 --methods 1000 --seed 1 --to fleet.store"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    default = FleetOptions()
    parser.add_argument("--spans", type=int, default=default.spans, help="calls, at least (default: %(default)s)")
    parser.add_argument("--methods", type=int, default=default.methods, help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=default.seed, help="(default: %(default)s)")
    parser.add_argument("--partitions", type=int, default=default.partitions, help="(default: %(default)s)")
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")


def run(flags: Namespace) -> int:
    """Does it."""
    options = FleetOptions(spans=flags.spans, methods=flags.methods, seed=flags.seed, partitions=flags.partitions)
    generate(flags.to, options)
    return 0
