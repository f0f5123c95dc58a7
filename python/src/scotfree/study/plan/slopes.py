"""What a byte costs on the wire: the slope of a wire's time over the sizes.

By the median of the slopes between pairs of calls (Theil and Sen): a few slow calls do not move it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import percent
from scotfree.study.plan.calls import Calls, Floats

_WAYS: Final = (("request_wire", "req_bytes"), ("response_wire", "resp_bytes"))
_PAIRS: Final = 20_000
# Sizes must differ by this share of their median for a slope, and by so many bytes whatever their median is: a
# link of 1 Gbit/s carries 1,000 bytes in 8 us, about what the time between two kernels scatters by. The slope over
# a handful of bytes is that scatter divided by a few.
_SPREAD_MIN: Final = 0.2
_SPREAD_BYTES_MIN: Final = 1_000
_CALLS_MIN: Final = 100
MISSING: Final = (
    f"request_wire beside rpc.request.size, or the response's, is needed of {_CALLS_MIN} calls, with sizes that "
    f"differ by {_SPREAD_BYTES_MIN:,} bytes, and by {percent(_SPREAD_MIN)} of their median"
)


def slopes(calls: Calls) -> list[tuple[Floats, float]]:
    """Of each way that tells it: the calls' sizes, NaN where none is known, and ns per byte, 0 at least."""
    found = [(calls.floats(size), _slope(calls, wire, size)) for wire, size in _WAYS]
    return [(sizes, max(slope, 0.0)) for sizes, slope in found if slope is not None]


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


def _differ(sizes: Floats) -> bool:
    """Whether sizes are far enough apart to carry a slope; one in ten at either end counts for nothing."""
    spread = np.subtract(*np.quantile(sizes, [0.9, 0.1]))
    return bool(spread >= max(_SPREAD_BYTES_MIN, _SPREAD_MIN * np.median(sizes)))
