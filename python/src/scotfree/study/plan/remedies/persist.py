"""persist: updates are acknowledged by a device on the path as soon as its log holds them (thesis 3.2 to 3.4).

What an update takes that the device answers: `plan/early.py`. Where the server is saturated, sustained throughput
stays the server's, so the mean call takes what it did (Little). But a session's window that is full opens for many
updates at a time: of these, as many as wait for it take until it opens again, and the others are answered early.
Fewer calls that wait far longer: harm at the tail.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, percent
from scotfree.study.plan import early
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.context import Context
from scotfree.study.plan.early import Early
from scotfree.study.plan.fit import PARTS
from scotfree.study.plan.load import WAITING_MEAN_MAX, Load, load
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "persist"
IS_OURS: Final = True
_SEED: Final = 342
# Datagrams that a server takes off its socket in a turn: RX_BURST_MAX x RX_BURSTS_PER_TURN_MAX of scotfree-rpc.
_TURN: Final = 256.0
# A session's window at most, unless somebody asks for another.
_WINDOW: Final = 4096.0
# How well that is known: each draw of the forecast takes another one.
_OPENS_FACTORS: Final = np.geomspace(0.8, 1.25, PARTS)


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls of one method would take."""
    reason = _refusal(calls, context)
    if reason is not None:
        return Refused(reason)
    fit = context.fit(NAME)
    assert fit is not None
    state = load(calls)
    if context.log_slots is not None and state.outstanding >= context.log_slots:
        return Effect((calls.total,), (_full_log(state, context.log_slots),))
    totals, said = Early.of(calls, context, fit).drawn()
    notes = [*_assumed(context), *said]
    if not state.is_saturated:
        return Effect(totals, tuple(notes))
    opens = _opens(state, context)
    if opens <= state.outstanding:
        return Effect((calls.total,), (_no_gain(state, opens), *notes))
    waiting = tuple(
        _waiting(each, state, opens * factor, part)
        for part, (each, factor) in enumerate(zip(totals, _OPENS_FACTORS, strict=True))
    )
    return Effect(waiting, (_harm(state, opens), *notes))


def _refusal(calls: Calls, context: Context) -> str | None:
    if not context.is_update(calls.service, calls.method):
        if context.updates:
            return "a read is not acknowledged early, and no pattern of --updates matches it"
        return "a read is not acknowledged early; say with --updates PATTERN if it is an update"
    if context.fit(NAME) is None:
        return context.why_missing(NAME)
    return early.lacking(calls)


def _assumed(context: Context) -> list[str]:
    if context.updates:
        return []
    return ["taken for an update by its name; name the updates with --updates PATTERN"]


def _full_log(state: Load, slots: int) -> str:
    return (
        f"no gain: {state.outstanding:.0f} calls are under way on average, which fill the log's {slots} slots: "
        "beyond them nothing is acknowledged early"
    )


def _opens(state: Load, context: Context) -> float:
    """For how many updates at a time a full window opens: those of a server's turn, or between two looks."""
    return min(max(_TURN, context.stable_every_ns / state.each_ns), _WINDOW)


def _waiting(totals: Floats, state: Load, opens: float, part: int) -> Floats:
    """One draw of the new totals: as many wait for the window as are under way, and the mean is as it was."""
    share = min(state.outstanding / opens, 1.0)
    wait = (state.outstanding * state.each_ns - (1 - share) * float(np.mean(totals))) / share
    which = np.random.default_rng([_SEED, part]).permutation(len(totals)) < share * len(totals)
    return np.where(which, max(wait, 0.0), totals)


def _saturated(state: Load) -> str:
    return f"the server is saturated ({_queue(state)}), and sustained throughput stays the server's"


def _queue(state: Load) -> str:
    """By what that is known, as `Load.is_saturated` asks it."""
    if state.waiting_share is not None:
        return f"{percent(state.waiting_share)} of its requests find another one waiting at the server"
    if state.waiting is not None and state.waiting >= WAITING_MEAN_MAX:
        return f"{state.waiting:.1f} requests wait at the server on average"
    return f"the server's utilisation is {percent(state.utilisation or 0.0)}"


def _no_gain(state: Load, opens: float) -> str:
    return (
        f"no gain: {_saturated(state)}; {state.outstanding:.0f} calls are under way on average, and a full window "
        f"opens for about {opens:.0f} updates at a time, which are answered as late as now"
    )


def _harm(state: Load, opens: float) -> str:
    return (
        f"{_saturated(state)}; once a session's window is full it opens for about {opens:.0f} updates at a time, "
        f"every {duration(opens * state.each_ns)}: of {opens:.0f} calls {state.outstanding:.0f} wait so long, and "
        "the others are answered early (--stable-every says how often your server's sidecar looks what is stable)"
    )
