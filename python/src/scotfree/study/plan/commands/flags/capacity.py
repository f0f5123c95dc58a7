"""`scot plan capacity`: the size of a device's log and of its queue."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from scotfree.command_line import later
from scotfree.numbers import amount, duration_ns, whole
from scotfree.study.commands.flags import reading
from scotfree.study.plan.capacity import ACCESS_NS

HELP = "size a device's log and queue, from flags or from the updates in DATA"
EXAMPLES = """\
  scot plan capacity --rate 20000 --time-to-stable 2ms --bytes 512 --link 10 --rtt 500us
  scot plan capacity traces/ --updates 'Cart.*' --link 25"""
# Of an update, if nobody says.
BYTES = 1024
# Without a measured tail: a time to stable of which the slowest percent takes so many means.
TAIL = 4.0


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "data", type=Path, nargs="*", metavar="DATA", help="what --rate and the others are read off"
    )
    parser.add_argument("--rate", type=amount(1e-6, 1e12), metavar="PER_SECOND", help="updates per second")
    parser.add_argument("--time-to-stable", type=duration_ns, metavar="TIME", help="mean, as 2ms")
    parser.add_argument(
        "--time-to-stable-p99", type=duration_ns, metavar="TIME", help=f"(default: {TAIL:.0f} means)"
    )
    parser.add_argument("--bytes", type=whole(1, 2**40), help=f"of an update (default: {BYTES})")
    parser.add_argument(
        "--sessions", type=whole(1, 2**32), default=1, help="that share the rate (default: %(default)s)"
    )
    parser.add_argument("--link", type=amount(1e-6, 1e6), metavar="GBIT", help="of the device's port, in Gbit/s")
    parser.add_argument("--rtt", type=duration_ns, metavar="TIME", help="the longest of an update")
    parser.add_argument(
        "--access",
        type=duration_ns,
        default=ACCESS_NS,
        metavar="TIME",
        help="of the log's memory (default: 100ns)",
    )
    parser.add_argument("--updates", action="append", default=[], metavar="PATTERN", help="as of `scot plan`")
    reading.add(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


run = later("scotfree.study.plan.commands.capacity")
