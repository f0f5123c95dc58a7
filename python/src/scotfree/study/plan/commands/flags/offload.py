"""`scot plan offload`: what hardware that transforms messages would leave of a call's RPC layer."""

from __future__ import annotations

from argparse import ArgumentParser

from scotfree.command_line import later
from scotfree.numbers import amount, duration_ns
from scotfree.study.hardware.offload import HEADER, ON_CHIP_NS, PAYLOAD, UNIQUE_ID
from scotfree.study.hardware.pipelines import GHZ

HELP = "what hardware that transforms messages would leave of a call's RPC layer, from its cycles"
EXAMPLES = """\
  scot plan offload                                       the thesis' UniqueId: four messages, 4,440 cycles
  scot plan offload --cycles 20000 --ghz 3 --messages 2 --payload 0.8 --header 0.1 --traversal 1us"""
# Of a message, if nobody says: those of the thesis' UniqueId, headers with them.
BYTES = 84.0


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "--cycles",
        type=amount(1, 1e12),
        default=UNIQUE_ID.time,
        metavar="COUNT",
        help="that a core spends in the RPC layer of a call and of those below it (default: %(default)s)",
    )
    parser.add_argument(
        "--ghz", type=amount(0.1, 100), default=GHZ, metavar="NUMBER", help="of that core (default: %(default)s)"
    )
    for flag, default, meaning in (
        ("--payload", PAYLOAD, "messages to bytes and back"),
        ("--header", HEADER, "their headers; the rest is dispatch"),
    ):
        parser.add_argument(
            flag,
            type=amount(0, 1),
            default=default,
            metavar="SHARE",
            help=f"of these cycles: {meaning} (default: %(default)s)",
        )
    parser.add_argument(
        "--messages",
        type=amount(1, 1e6),
        default=UNIQUE_ID.messages,
        metavar="COUNT",
        help="that come or go: two of the call, two of each below it (default: %(default)s)",
    )
    parser.add_argument(
        "--bytes",
        type=amount(1, 1e9),
        default=BYTES,
        metavar="COUNT",
        help="of a message and its header (default: %(default)s)",
    )
    parser.add_argument(
        "--traversal",
        type=duration_ns,
        default=ON_CHIP_NS,
        metavar="TIME",
        help="one way between core, memory and hardware (default: 20ns, as on a chip; over PCIe 1us)",
    )
    parser.add_argument("--json", action="store_true", help="print it as JSON")


run = later("scotfree.study.plan.commands.offload")
