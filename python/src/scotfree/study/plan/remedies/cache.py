"""cache: a device on the path answers reads of what it has seen pass (thesis 3.4.4).

Which calls it would answer is played from the keys in the traces (`plan/accesses.py`); such a call takes what an
update takes that the device acknowledges (`plan/early.py`), and the others what they do now. That the server has
less to do is left out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import percent, size
from scotfree.study.plan import early
from scotfree.study.plan.accesses import Accesses
from scotfree.study.plan.calls import Calls, Truths
from scotfree.study.plan.context import Context
from scotfree.study.plan.early import Early
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "cache"
IS_OURS: Final = True
# Whose fit says how long a device takes to answer.
_FIT: Final = "persist"
# Sizes that the curve is told at, as parts of the one that is asked for.
_CURVE: Final = (1 / 16, 1 / 4, 1, 4)
# Below that share of hits nothing is worth a forecast.
_HITS_MIN: Final = 0.001


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls of one method would take."""
    accesses = context.accesses.get(calls.service)
    if context.is_update(calls.service, calls.method):
        return Refused("an update is not answered by a cache of reads")
    if accesses is None:
        return Refused(
            "its keys are not in these traces: record them with `scot sidecar client --trace FILE --trace-keys 1`"
            ", or as rpc.key.hash of all calls of some keys"
        )
    fit = context.fit(_FIT)
    reason = context.why_missing(_FIT) if fit is None else early.lacking(calls)
    if fit is None or reason is not None:
        return Refused(reason or "")
    hits = _hits(calls, accesses, context.cache_bytes)
    notes = _said(calls, accesses, context, hits)
    if float(np.average(hits, weights=calls.weight)) < _HITS_MIN:
        return Effect((calls.total,), tuple(notes))
    totals, said = Early.of(calls, context, fit, hits).drawn()
    return Effect(totals, (*notes, *said))


def _hits(calls: Calls, accesses: Accesses, bytes_max: float) -> Truths:
    return accesses.of(calls, accesses.hits(bytes_max))


def _said(calls: Calls, accesses: Accesses, context: Context, hits: Truths) -> list[str]:
    shares = {
        factor: float(np.average(hits if factor == 1 else _hits(calls, accesses, factor * context.cache_bytes)))
        for factor in _CURVE
    }
    curve = ", ".join(
        f"{percent(share)} with {size(factor * context.cache_bytes)}" for factor, share in shares.items()
    )
    notes = [
        f"hits: {curve} (--cache-bytes); a key's first two reads are none, and {percent(accesses.update_share)} "
        "of the service's calls whose keys are known are updates",
    ]
    if accesses.one_in > 1:
        notes.append(f"one key in {accesses.one_in:.0f} is known")
    return notes
