"""persist: updates are acknowledged by a device on the path as soon as its log holds them (thesis 3.2 to 3.4).

A call keeps client_send_queue, request_stack and client_recv_queue. In place of all between there comes the
device's answer time A, drawn from the fit. Nothing is gained where the server is saturated: sustained throughput
stays the server's, and callers wait for it as before.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, percent, size
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import KEPT, Fit, kept, middle, wires
from scotfree.study.plan.load import Load, load
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "persist"
IS_OURS: Final = True
# Of what the forecast rests on; a method is refused if fewer of its calls say it.
_NEEDED: Final = ("client_send_queue", "request_stack", "request_wire", "server_recv_queue", "server_app")
_KNOWN_MIN: Final = 0.9
# Beyond so many times the fit's size of a request the fit is extrapolated, and that is said.
_SIZE_FACTOR: Final = 4.0
_SEED: Final = 342
# A is in part wake-ups, which go with the machine's pace, and in part work on a packet, which does not: it goes
# with the pace to this power.
_PACE_POWER: Final = 0.5


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls of one method would take."""
    reason = _refusal(calls, context)
    if reason is not None:
        return Refused(reason)
    assert context.persist is not None
    state = load(calls)
    gainless = _gainless(state, context)
    if gainless is not None:
        return Effect((calls.total,), (f"no gain: {gainless}",))
    is_shared = _shares_processors(calls, context)
    totals = tuple(
        _totals(calls, context.persist, part, is_shared=is_shared) for part in range(len(context.persist.parts))
    )
    return Effect(totals, tuple(_notes(calls, context, is_shared=is_shared)))


def _refusal(calls: Calls, context: Context) -> str | None:
    if not context.is_update(calls.service, calls.method):
        return "a read is not acknowledged early; say with --updates PATTERN if it is an update"
    if context.persist is None:
        return context.persist_missing
    share = float(calls.known((*_NEEDED, "client_recv_queue")).mean())
    if share < _KNOWN_MIN:
        return f"only {percent(share)} of its calls have {', '.join((*_NEEDED, KEPT[-1]))}"
    return None


def _gainless(state: Load, context: Context) -> str | None:
    """Why nothing would be gained whatever the device takes; None if something may be."""
    if state.is_saturated:
        queue = (
            f"{percent(state.waiting_share)} of its requests find another one waiting at the server"
            if state.waiting_share is not None
            else f"the server's utilisation is {percent(state.utilisation or 0.0)}"
        )
        return f"the server is saturated ({queue}), and sustained throughput stays the server's"
    if context.log_slots is not None and state.outstanding >= context.log_slots:
        return (
            f"{state.outstanding:.0f} calls are under way on average, which fill the log's "
            f"{context.log_slots} slots: beyond them nothing is acknowledged early"
        )
    return None


def _shares_processors(calls: Calls, context: Context) -> bool:
    """Whether caller and server run on one machine, as they do where the fit was made."""
    if context.is_one_machine is not None:
        return context.is_one_machine
    client, server = calls.texts("client_machine"), calls.texts("server_machine")
    said = np.array([name is not None for name in client]) & np.array([name is not None for name in server])
    return bool(said.any() and (client[said] == server[said]).mean() > 0.5)


def _totals(calls: Calls, fit: Fit, part: int, *, is_shared: bool) -> Floats:
    """One draw of the new totals, from one part of the fit; calls without the stages keep theirs."""
    chance = np.random.default_rng([_SEED, part])
    answers = fit.answers(part)
    drawn = answers[chance.permutation(np.arange(len(calls)) * len(answers) // len(calls))]
    left = kept(calls)
    if is_shared:
        drawn = drawn * (middle(left) / fit.parts[part].pace_ns) ** _PACE_POWER
        blocked = chance.random(len(calls)) < 1 / fit.processors
        early = np.where(blocked, np.maximum(left + drawn, _until_done(calls)), left + drawn)
    else:
        early = left + drawn + max(0.0, wires(calls) - fit.wires_ns)
    return np.where(np.isnan(early), calls.total, early)


def _until_done(calls: Calls) -> Floats:
    """From the call until the server has done its work, and then the caller's turn on the same processor.

    The way to the server and the wait there count with their medians: their tails without the remedy are those of
    three parties taking turns, and the turns are others with it.
    """
    turn = float(np.nanquantile(calls.ns("client_recv_queue"), 0.1))
    way = middle(calls.ns("request_wire")) + middle(calls.ns("server_recv_queue"))
    until: Floats = np.sum([calls.ns(stage) for stage in (*KEPT[:2], "server_app")], axis=0) + way + turn
    return until


def _notes(calls: Calls, context: Context, *, is_shared: bool) -> list[str]:
    fit = context.persist
    assert fit is not None
    notes = []
    if not context.updates:
        notes.append("taken for an update by its name; name the updates with --updates PATTERN")
    if is_shared:
        notes.append(
            f"caller and server share {fit.processors} processors: the server still does its work, and one in "
            f"{fit.processors} answers finds the caller's processor taken by it"
        )
    else:
        beyond = max(0.0, wires(calls) - fit.wires_ns)
        notes.append(f"the device stands beside the server: {duration(beyond)} of wire beyond the fit's are kept")
    bytes_ = middle(calls.floats("req_bytes")) or fit.request_bytes
    if not fit.request_bytes / _SIZE_FACTOR <= bytes_ <= fit.request_bytes * _SIZE_FACTOR:
        notes.append(f"fitted on requests of {size(fit.request_bytes)}, these are of {size(bytes_)}")
    return notes
