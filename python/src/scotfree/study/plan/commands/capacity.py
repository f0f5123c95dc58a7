"""`scot plan capacity`: the size of a device's log and of its queue."""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np

from scotfree.numbers import amount, duration_ns, whole
from scotfree.study.commands import ingest
from scotfree.study.figures.words import duration, number, size
from scotfree.study.plan.calls import Calls, methods
from scotfree.study.plan.capacity import ACCESS_NS, Capacity, Need, capacity, flags
from scotfree.study.plan.commands.price import open_study
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import middle
from scotfree.study.plan.load import busy_span
from scotfree.study.plan.price import Resampled
from scotfree.study.trouble import StudyError

HELP = "size a device's log and queue, from flags or from the updates in DATA"
EXAMPLES = """\
  scot plan capacity --rate 20000 --time-to-stable 2ms --bytes 512 --link 10 --rtt 500us
  scot plan capacity traces/ --updates 'Cart.*' --link 25"""
_BYTES = 1024
# Without a measured tail: a time to stable of which the slowest percent takes so many means.
_TAIL = 4.0
_METHODS = 1_000


def add(parser: ArgumentParser) -> None:
    """Says the flags."""
    parser.add_argument(
        "data", type=Path, nargs="*", metavar="DATA", help="what --rate and the others are read off"
    )
    parser.add_argument("--rate", type=amount(1e-6, 1e12), metavar="PER_SECOND", help="updates per second")
    parser.add_argument("--time-to-stable", type=duration_ns, metavar="TIME", help="mean, as 2ms")
    parser.add_argument(
        "--time-to-stable-p99", type=duration_ns, metavar="TIME", help=f"(default: {_TAIL:.0f} means)"
    )
    parser.add_argument("--bytes", type=whole(1, 2**40), help=f"of an update (default: {_BYTES})")
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
    ingest.add_reading(parser)
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(flags_: Namespace) -> int:
    """Does it."""
    need = _need(flags_)
    found = capacity(need)
    lines = flags(need, found)
    if flags_.json:
        print(json.dumps({"need": asdict(need), "capacity": asdict(found), "flags": lines}, indent=1))
    else:
        print(
            "\n".join([*_sentences(need, found), "", "scot switch … with one of:", *(f"  {one}" for one in lines)])
        )
    return 0


def _need(flags_: Namespace) -> Need:
    read = _measured(flags_) if flags_.data else None
    rate = flags_.rate or (read.rate_per_s if read else None)
    stable = flags_.time_to_stable or (read.stable_ns if read else None)
    if rate is None or stable is None:
        raise StudyError(
            "size a device: rate and time to stable are not known", "give --rate and --time-to-stable"
        )
    tail = flags_.time_to_stable_p99 or (
        read.stable_p99_ns if read and not flags_.time_to_stable else _TAIL * stable
    )
    size_bytes = flags_.bytes or (read.bytes if read else _BYTES)
    return Need(rate, stable, tail, size_bytes, flags_.sessions, flags_.link, flags_.rtt, flags_.access)


def _measured(flags_: Namespace) -> Need:
    context = Context(updates=tuple(flags_.updates))
    with tempfile.TemporaryDirectory(prefix="scot-plan-") as scratch:
        study = open_study(flags_, flags_.data, Path(scratch) / "store")
        found = [one for one in methods(study, _METHODS) if context.is_update(one.service, one.method)]
    if not found:
        raise StudyError(
            "size a device: no method with 100 calls is an update", "name the updates with --updates PATTERN"
        )
    return measured(found)


def measured(updates: list[Calls]) -> Need:
    """What calls of these methods need: an update is stable when the server has answered, at the latest."""
    rates = [float(one.weight.sum()) / busy_span(one) * 1e9 for one in updates]
    totals, weights = (np.concatenate([getattr(one, name) for one in updates]) for name in ("total", "weight"))
    tail = Resampled(totals, weights, np.zeros(len(totals), np.int64)).quantile(0.99)
    sizes = [middle(one.floats("req_bytes")) for one in updates]
    mean = float(np.average(totals, weights=weights))
    return Need(sum(rates), mean, max(tail, mean), int(max(sizes)) or _BYTES)


def _sentences(need: Need, found: Capacity) -> list[str]:
    lines = [
        f"{number(need.rate_per_s)} updates/s, stable after {duration(need.stable_ns)} (P99 "
        f"{duration(need.stable_p99_ns)}), keep {number(found.slots_mean)} in the log on average; with headroom "
        f"{found.slots:,} slots, {size(found.log_bytes)} of updates.",
    ]
    if found.in_flight_bytes_max is not None:
        lines.append(f"The link carries at most {size(found.in_flight_bytes_max)} in a round trip (thesis 3.1).")
    if found.queue_bytes is not None:
        lines.append(f"The queue before the log's memory: {size(found.queue_bytes)} (thesis 3.2).")
    return lines
