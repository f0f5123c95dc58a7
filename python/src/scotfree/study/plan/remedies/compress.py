"""compress: fewer bytes on the wire against the time that squeezing them takes (section 5, common operations).

What a byte costs on the wire is the slope of request_wire and response_wire over the sizes, by the median of the
slopes between pairs of calls (Theil and Sen): a few slow calls do not move it. Both sides' work is added.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import number, percent
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "compress"
IS_OURS: Final = False
_WAYS: Final = (("request_wire", "req_bytes"), ("response_wire", "resp_bytes"))
_PAIRS: Final = 20_000
# Sizes must differ by this share of their median for a slope, and by so many bytes whatever their median is: a
# link of 1 Gbit/s carries 1,000 bytes in 8 us, about what the time between two kernels scatters by. The slope over
# a handful of bytes is that scatter divided by a few.
_SPREAD_MIN: Final = 0.2
_SPREAD_BYTES_MIN: Final = 1_000
_CALLS_MIN: Final = 100


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take with both ways compressed."""
    slopes = [
        (calls.floats(size), slope) for wire, size in _WAYS if (slope := _slope(calls, wire, size)) is not None
    ]
    if not slopes:
        return Refused(
            f"request_wire beside rpc.request.size, or the response's, is needed of {_CALLS_MIN} calls, with "
            f"sizes that differ by {_SPREAD_BYTES_MIN:,} bytes, and by {percent(_SPREAD_MIN)} of their median"
        )
    change = np.sum([_change(np.nan_to_num(sizes), slope, context) for sizes, slope in slopes], axis=0)
    rates = ", ".join(f"{slope:.3g}" for _, slope in slopes)
    note = (
        f"a byte takes {rates} ns on the wire and is taken to cost {number(context.compress_ns_per_byte)} ns to "
        f"squeeze and unpack by {number(context.compression_ratio)}"
    )
    return Effect((calls.total + change,), (note,))


def _change(sizes: Floats, slope: float, context: Context) -> Floats:
    saved: Floats = sizes * max(slope, 0.0) * (1 - 1 / context.compression_ratio)
    return sizes * context.compress_ns_per_byte - saved


def _differ(sizes: Floats) -> bool:
    """Whether sizes are far enough apart to carry a slope; one in ten at either end counts for nothing."""
    spread = np.subtract(*np.quantile(sizes, [0.9, 0.1]))
    return bool(spread >= max(_SPREAD_BYTES_MIN, _SPREAD_MIN * np.median(sizes)))


def _slope(calls: Calls, wire: str, size: str) -> float | None:
    """ns per byte; None where it cannot be told."""
    times, sizes = calls.ns(wire), calls.floats(size)
    known = ~np.isnan(times) & ~np.isnan(sizes)
    times, sizes = times[known], sizes[known]
    if len(times) < _CALLS_MIN or not _differ(sizes):
        return None
    one, other = np.random.default_rng(5).integers(0, len(times), (2, _PAIRS))
    differ = sizes[one] != sizes[other]
    return float(np.median((times[one] - times[other])[differ] / (sizes[one] - sizes[other])[differ]))
