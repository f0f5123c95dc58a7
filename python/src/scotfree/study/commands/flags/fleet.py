"""`scot study fleet`: a synthetic fleet with known truth, for tests and benchmarks."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.study.fleet.options import FleetOptions

HELP = "make the calls, metrics and profiles of a synthetic fleet"
EXAMPLES = """\
  scot study fleet --spans 1000000 --methods 1000 --seed 1 --to fleet.store     a store, ready for a report
  scot study fleet --spans 50000 --to fleet --as otlp                           client.jsonl and server.jsonl
  scot study fleet --spans 100000 --to fleet.store --truth fleet.truth          and what is known of it"""


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    default = FleetOptions()
    for name, what in (
        ("spans", "calls, at least: the last trace is whole"),
        ("methods", "methods of all services"),
        ("seed", "the same seed gives the same calls, whatever the partitions"),
        ("partitions", "a divisor of 64"),
        ("clusters", "clusters of machines"),
        ("depth", "calls from the root to the deepest leaf, at most 20"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=getattr(default, name), help=f"{what} (default: %(default)s)"
        )
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="a new folder")
    parser.add_argument(
        "--as", dest="form", choices=("store", "otlp"), default="store", help="(default: %(default)s)"
    )
    parser.add_argument("--no-stages", action="store_true", help="OTLP without rpc.stage.*: what most traces have")
    parser.add_argument(
        "--truth", type=Path, metavar="FOLDER", help="also write what is known of it, as Parquet and JSON"
    )


run = later("scotfree.study.commands.fleet")
