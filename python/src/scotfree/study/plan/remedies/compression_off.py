"""compression off: the processor time that squeezing takes, against more bytes on the wire (section 4.1 and 5).

Compression is the largest part of the published RPC cycle tax (3.1 of 7.1 % of all cycles, F20). Of a call its
server's processor time is saved by the share that the server's profile has in compression; the caller's is not in
its trace, and left out. Sizes are those of messages before they are squeezed, as instrumentations record them.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import number, percent
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.known import KNOWN_MIN, PROFILE_NEEDED, SHARE_MIN, lacking_time
from scotfree.study.plan.price import Effect, Refused
from scotfree.study.plan.slopes import MISSING, slopes

NAME: Final = "compression off"
IS_OURS: Final = False


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take without."""
    share = context.compression.get(calls.service)
    if share is None:
        return Refused(PROFILE_NEEDED)
    if share < SHARE_MIN:
        return Refused(f"its server spends {percent(share)} of its processor time on compression: there is none")
    reason = lacking_time(calls)
    if reason is not None:
        return Refused(reason)
    cpu_ns = calls.floats("cpu_ns")
    found = slopes(calls)
    if not found:
        return Refused(MISSING)
    measured = _ratio(calls)
    ratio = measured or context.compression_ratio
    # A byte of a message takes so long now, squeezed.
    bytes_ns = np.sum([np.nan_to_num(sizes) * slope * (ratio - 1) for sizes, slope in found], axis=0)
    rates = ", ".join(f"{slope:.3g}" for _, slope in found)
    note = (
        f"its server spends {percent(share)} of its processor time on compression; a byte of its messages takes "
        f"{rates} ns on the wire, squeezed {'by' if measured else 'as is assumed by'} {number(ratio)}"
    )
    return Effect((np.maximum(calls.total + bytes_ns - share * np.nan_to_num(cpu_ns), 0.0),), (note,))


def _ratio(calls: Calls) -> float | None:
    """Bytes of messages over those on the wire, of the calls that say both; None if too few do."""
    pairs = [(calls.floats(f"{way}_bytes"), calls.floats(f"{way}_wire_bytes")) for way in ("req", "resp")]
    messages, wires = (np.concatenate(sizes) for sizes in zip(*pairs, strict=True))
    known = ~np.isnan(messages) & ~np.isnan(wires)
    if known.mean() < KNOWN_MIN or wires[known].sum() <= 0:
        return None
    return max(float(messages[known].sum() / wires[known].sum()), 1.0)
