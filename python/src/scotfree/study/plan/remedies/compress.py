"""compress: fewer bytes on the wire against the time that squeezing them takes (section 5, common operations).

Both sides' work is added.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import number
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused
from scotfree.study.plan.slopes import MISSING, slopes

NAME: Final = "compress"
IS_OURS: Final = False


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take with both ways compressed."""
    found = slopes(calls)
    if not found:
        return Refused(MISSING)
    change = np.sum([_change(np.nan_to_num(sizes), slope, context) for sizes, slope in found], axis=0)
    rates = ", ".join(f"{slope:.3g}" for _, slope in found)
    note = (
        f"a byte takes {rates} ns on the wire and is taken to cost {number(context.compress_ns_per_byte)} ns to "
        f"squeeze and unpack by {number(context.compression_ratio)}"
    )
    return Effect((calls.total + change,), (note,))


def _change(sizes: Floats, slope: float, context: Context) -> Floats:
    saved: Floats = sizes * slope * (1 - 1 / context.compression_ratio)
    return sizes * context.compress_ns_per_byte - saved
