"""`scot plan capacity`: the size of a device's log and of its queue."""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np

from scotfree.study.figures.words import duration, number, size
from scotfree.study.plan.calls import Calls, methods
from scotfree.study.plan.capacity import Capacity, Need, capacity, flags
from scotfree.study.plan.commands.flags.capacity import BYTES, TAIL
from scotfree.study.plan.commands.price import open_study
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import middle
from scotfree.study.plan.load import busy_span
from scotfree.study.plan.price import Resampled
from scotfree.study.trouble import StudyError

_METHODS = 1_000


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
        read.stable_p99_ns if read and not flags_.time_to_stable else TAIL * stable
    )
    size_bytes = flags_.bytes or (read.bytes if read else BYTES)
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
    return Need(sum(rates), mean, max(tail, mean), int(max(sizes)) or BYTES)


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
