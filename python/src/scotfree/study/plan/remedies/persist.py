"""persist: updates are acknowledged by a device on the path as soon as its log holds them (thesis 3.2 to 3.4).

A call keeps client_send_queue and request_stack. In place of all that follows there comes the device's answer time
A, drawn from the fit by the pause before the call, with the wake-up of the caller; of client_recv_queue what is
longer than a wake-up is kept, since that caller has something else to do.

Where the server is saturated, sustained throughput stays the server's, so the mean call takes what it did
(Little). But a session's window that is full opens for many updates at a time: of these, as many as wait for it
take until it opens again, and the others are answered early. Fewer calls that wait far longer: harm at the tail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, percent, size
from scotfree.study.plan.calls import Calls, Floats, Truths
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import KEPT, PARTS, RANKS, RECEIVED, WORK, Fit, kept, middle, wires
from scotfree.study.plan.load import WAITING_MEAN_MAX, Load, load
from scotfree.study.plan.pauses import before, before_if
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "persist"
IS_OURS: Final = True
# Of what the forecast rests on; a method is refused if fewer of its calls say it.
_NEEDED: Final = (*KEPT, "request_wire", "server_recv_queue", WORK, RECEIVED)
_KNOWN_MIN: Final = 0.9
# Beyond so many times the fit's size of a request the fit is extrapolated, and that is said.
_SIZE_FACTOR: Final = 4.0
# From this share of calls on whose caller is busy, that is said.
_BUSY_SHARE: Final = 0.05
# Of so many busy callers it can be told how answers and waits go together: who comes back at times of their own
# wait as much less as their answers come later, the others as long whatever the answer. Told apart midway.
_BUSY_MIN: Final = 100
_OWN_TIMES_SLOPE: Final = -0.5
# Beyond so many times the fit's pauses that is said, too.
_PAUSE_FACTOR: Final = 4.0
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
    beyond = _beyond(calls, context)
    own = _own(calls, fit, beyond)
    rested = _rested(own)
    totals = tuple(_totals(own, part, rested) for part in range(PARTS))
    notes = _notes(calls, context, beyond, float(np.median(rested)))
    if not state.is_saturated:
        return Effect(totals, tuple(notes))
    opens = _opens(state, context)
    if opens <= state.outstanding:
        return Effect((calls.total,), (_no_gain(state, opens), *notes))
    waiting = tuple(
        _waiting(early, state, opens * factor, part)
        for part, (early, factor) in enumerate(zip(totals, _OPENS_FACTORS, strict=True))
    )
    return Effect(waiting, (_harm(state, opens), *notes))


def _refusal(calls: Calls, context: Context) -> str | None:
    if not context.is_update(calls.service, calls.method):
        if context.updates:
            return "a read is not acknowledged early, and no pattern of --updates matches it"
        return "a read is not acknowledged early; say with --updates PATTERN if it is an update"
    if context.fit(NAME) is None:
        return context.why_missing(NAME)
    share = float(calls.known(_NEEDED).mean())
    if share < _KNOWN_MIN:
        return f"only {percent(share)} of its calls have {', '.join(_NEEDED)}"
    return None


def _full_log(state: Load, slots: int) -> str:
    return (
        f"no gain: {state.outstanding:.0f} calls are under way on average, which fill the log's {slots} slots: "
        "beyond them nothing is acknowledged early"
    )


def _opens(state: Load, context: Context) -> float:
    """For how many updates at a time a full window opens: those of a server's turn, or between two looks."""
    return min(max(_TURN, context.stable_every_ns / state.each_ns), _WINDOW)


def _waiting(early: Floats, state: Load, opens: float, part: int) -> Floats:
    """One draw of the new totals: as many wait for the window as are under way, and the mean is as it was."""
    share = min(state.outstanding / opens, 1.0)
    wait = (state.outstanding * state.each_ns - (1 - share) * float(np.mean(early))) / share
    which = np.random.default_rng([_SEED, part]).permutation(len(early)) < share * len(early)
    return np.where(which, max(wait, 0.0), early)


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


def _is_one_machine(calls: Calls, context: Context) -> bool:
    """Whether caller and server run on one machine, as they do where the fit was made."""
    if context.is_one_machine is not None:
        return context.is_one_machine
    client, server = calls.texts("client_machine"), calls.texts("server_machine")
    said = np.array([name is not None for name in client]) & np.array([name is not None for name in server])
    return bool(said.any() and (client[said] == server[said]).mean() > 0.5)


def _beyond(calls: Calls, context: Context) -> Floats:
    """What of each call's wires is beyond the fit's, and kept: its method's usual way, and a way of its own."""
    fit = context.fit(NAME)
    assert fit is not None
    if _is_one_machine(calls, context):
        return np.zeros(len(calls))
    own = wires(calls)
    usual = max(0.0, middle(own) - fit.wires_ns)
    return np.where(own > fit.wires_most_ns, own - fit.wires_ns, usual)


@dataclass(frozen=True)
class _Own:
    """What is a method's own and not the fit's, of each call, ns."""

    calls: Calls
    fit: Fit
    # What its wires take beyond the fit's, how long the server works, and the caller is busy beyond a wake-up.
    beyond: Floats
    works: Floats
    busy: Floats
    # The least that each takes whenever its answer comes: where callers come back at times of their own.
    least: Floats


def _own(calls: Calls, fit: Fit, beyond: Floats) -> _Own:
    works = calls.ns(WORK)
    busy = np.maximum(calls.ns(RECEIVED) - fit.wakeup_ns, 0.0)
    # Where it is not known how long the server works, as long as on most.
    works = np.where(np.isnan(works), middle(works), works)
    if not _keeps_times(calls, busy > 0):
        return _Own(calls, fit, beyond, works, busy, np.zeros(len(calls)))
    # Of a caller that waits for its answer it is not seen when it would have come back: as others do.
    usual = middle(calls.total[busy > 0])
    least = np.where(busy > 0, calls.total, np.minimum(calls.total, usual))
    return _Own(calls, fit, beyond, works, np.zeros(len(calls)), least)


def _rested(own: _Own) -> Floats:
    """The pause before each call once all are answered early, by a device that takes its median time."""
    middle_rank = np.full(len(own.calls), RANKS // 2)
    answers = own.fit.answer(0, own.works, before(own.calls), middle_rank)
    return before_if(own.calls, _early(own, answers))


def _totals(own: _Own, part: int, rested: Floats) -> Floats:
    """One draw of the new totals, from one part of the fit."""
    ranks = np.arange(len(own.calls)) * RANKS // len(own.calls)
    drawn = own.fit.answer(part, own.works, rested, np.random.default_rng([_SEED, part]).permutation(ranks))
    return _early(own, drawn)


def _early(own: _Own, answers: Floats) -> Floats:
    """The totals with the device's answers; calls without the stages keep theirs."""
    total = own.calls.total
    early = np.maximum(kept(own.calls) + answers + own.beyond + own.busy, own.least)
    return np.where(np.isnan(early), total, early)


def _keeps_times(calls: Calls, is_busy: Truths) -> bool:
    """Whether callers that have something else to do come back to their calls at times of their own.

    Then an answer that comes later waits the less, and one that comes sooner is not seen sooner.
    """
    if is_busy.sum() < _BUSY_MIN:
        return False
    received = calls.ns(RECEIVED)
    return _slope(calls.total - received, received) < _OWN_TIMES_SLOPE


def _slope(of: Floats, to: Floats) -> float:
    """By how much `to` grows with `of`: the medians of the lower and the upper third (Tukey's resistant line)."""
    known = ~(np.isnan(of) | np.isnan(to))
    low, high = np.quantile(of[known], (1 / 3, 2 / 3))
    ends = [known & (of <= low), known & (of >= high)]
    run, rise = (float(np.diff([np.median(values[end]) for end in ends])[0]) for values in (of, to))
    return rise / run if run > 0 else 0.0


def _notes(calls: Calls, context: Context, beyond: Floats, rested: float) -> list[str]:
    fit = context.fit(NAME)
    assert fit is not None
    notes = [f"as {fit.about} answers here, by {fit.remedy_calls:,} calls of {fit.date[:10]}"] if fit.about else []
    if not context.updates:
        notes.append("taken for an update by its name; name the updates with --updates PATTERN")
    usual, most = np.quantile(beyond, (0.5, 0.99))
    if most > 0:
        notes.append(
            "the device stands beside the server: what the wires take beyond the fit's is kept, "
            f"{duration(usual)} in the median, {duration(most)} at the P99"
        )
    busy = float(np.nanmean(calls.ns(RECEIVED) > fit.wakeup_ns))
    if busy > _BUSY_SHARE:
        notes.append(
            f"{percent(busy)} of the answers wait for the caller longer than a wake-up "
            f"({duration(fit.wakeup_ns)}): what is beyond it is kept"
        )
    bytes_ = middle(calls.floats("req_bytes")) or fit.request_bytes
    if not fit.request_bytes / _SIZE_FACTOR <= bytes_ <= fit.request_bytes * _SIZE_FACTOR:
        notes.append(f"fitted on requests of {size(fit.request_bytes)}, these are of {size(bytes_)}")
    tried = [each.pause_ns for each in fit.answers]
    least, most = min(tried), max(tried)
    if not least / _PAUSE_FACTOR <= rested <= most * _PAUSE_FACTOR:
        notes.append(
            f"fitted on calls after pauses of {duration(least)} to {duration(most)}, these come after "
            f"{duration(rested)}"
        )
    return notes
