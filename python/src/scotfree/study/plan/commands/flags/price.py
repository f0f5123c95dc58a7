"""`scot plan DATA…`: prices every remedy on the user's own calls."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction
from pathlib import Path

from scotfree.command_line import later
from scotfree.numbers import amount, duration_ns, whole
from scotfree.study.commands.flags import reading
from scotfree.study.plan.context import Context

HELP = "forecast what every remedy would leave of the calls in DATA (the default command)"
EXAMPLES = """\
  scot plan traces/                           every remedy on the 20 methods that take most time
  scot plan report.store --updates 'Cart.*'   which methods are updates; else by their names
  scot plan before/ --measured after/         and beside the forecast what came of it once persist was applied
  scot plan traces/ --json | jq .prices       for scripts"""
FITS = Path("fits")


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument("data", type=Path, nargs="+", metavar="DATA", help="files, folders of them, or one store")
    parser.add_argument("--store", type=Path, metavar="FOLDER", help="where the store is made (default: nowhere)")
    parser.add_argument(
        "--updates",
        action="append",
        default=[],
        metavar="PATTERN",
        help="methods that are updates, as Cart.* (again for more; default: by their names)",
    )
    parser.add_argument(
        "--measured",
        type=Path,
        nargs="+",
        default=[],
        metavar="AFTER",
        help="the same methods' calls with the remedy: what came of the forecast",
    )
    parser.add_argument(
        "--applied", default="persist", metavar="REMEDY", help="which one that was (default: %(default)s)"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="REMEDY",
        help="price this one, such as persist (again for more; default: all)",
    )
    parser.add_argument("--fits", type=Path, default=FITS, metavar="FOLDER", help="(default: %(default)s)")
    parser.add_argument(
        "--one-machine",
        action=BooleanOptionalAction,
        default=None,
        help="callers, device and servers share one machine (default: as the calls say)",
    )
    parser.add_argument(
        "--log-slots", type=whole(0, 2**40), metavar="COUNT", help="of the device's log (default: enough)"
    )
    default = Context()
    parser.add_argument(
        "--stable-every",
        type=duration_ns,
        default=default.stable_every_ns,
        metavar="TIME",
        help="how often the server's sidecar looks what is stable (default: 50ms, as before a Redis)",
    )
    for flag, bounds, of, meaning in (
        ("--cache-bytes", (1, 2**60), default.cache_bytes, "of a device's cache of reads"),
        ("--hedges-max", (0, 1), default.hedges_max, "share of calls that may be hedges"),
        ("--compression-ratio", (1, 1e6), default.compression_ratio, "bytes over compressed bytes"),
        ("--compress-ns-per-byte", (0, 1e9), default.compress_ns_per_byte, "work of both sides"),
    ):
        parser.add_argument(
            flag, type=amount(*bounds), default=of, metavar="NUMBER", help=f"{meaning} (default: %(default)s)"
        )
    parser.add_argument(
        "--replicas",
        type=whole(2, 255),
        default=default.replicas,
        metavar="COUNT",
        help="servers that would keep one state (default: %(default)s)",
    )
    parser.add_argument(
        "--traversal",
        type=duration_ns,
        default=default.traversal_ns,
        metavar="TIME",
        help="one way from the core to hardware that transforms its messages (default: 20ns, as on a chip; over "
        "PCIe 1us)",
    )
    parser.add_argument(
        "--methods",
        type=whole(1, 1_000_000),
        default=20,
        metavar="COUNT",
        help="those that take most time (default: %(default)s)",
    )
    reading.add(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


run = later("scotfree.study.plan.commands.price")
