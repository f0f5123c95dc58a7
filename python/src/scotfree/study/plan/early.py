"""What calls take that a device on the path answers in place of the server: drawn from the fit of its answer time.

A call keeps client_send_queue and request_stack. In place of all that follows there comes the device's answer time
A, drawn from the fit by the pause before the call, with the wake-up of the caller; of client_recv_queue what is
longer than a wake-up is kept, since that caller has something else to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, percent, size
from scotfree.study.plan.calls import Calls, Floats, Truths
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import KEPT, PARTS, RANKS, RECEIVED, WORK, Fit, kept, middle, wires
from scotfree.study.plan.pauses import before, before_if

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


def lacking(calls: Calls) -> str | None:
    """Why it cannot be told of these calls; None if it can."""
    share = float(calls.known(_NEEDED).mean())
    if share < _KNOWN_MIN:
        return f"only {percent(share)} of its calls have {', '.join(_NEEDED)}"
    return None


@dataclass(frozen=True)
class Early:
    """What is a method's own and not the fit's, of each call, ns."""

    calls: Calls
    fit: Fit
    # What its wires take beyond the fit's, how long the server works, and the caller is busy beyond a wake-up.
    beyond: Floats
    works: Floats
    busy: Floats
    # The least that each takes whenever its answer comes: where callers come back at times of their own.
    least: Floats
    # Which calls the device answers.
    which: Truths

    @classmethod
    def of(cls, calls: Calls, context: Context, fit: Fit, which: Truths | None = None) -> Early:
        """Of all calls, or of some."""
        works = calls.ns(WORK)
        busy = np.maximum(calls.ns(RECEIVED) - fit.wakeup_ns, 0.0)
        # Where it is not known how long the server works, as long as on most.
        works = np.where(np.isnan(works), middle(works), works)
        least = np.zeros(len(calls))
        if _keeps_times(calls, busy > 0):
            # Of a caller that waits for its answer it is not seen when it would have come back: as others do.
            usual = middle(calls.total[busy > 0])
            least = np.where(busy > 0, calls.total, np.minimum(calls.total, usual))
            busy = np.zeros(len(calls))
        answered = np.ones(len(calls), np.bool_) if which is None else which
        return cls(calls, fit, _beyond(calls, context, fit), works, busy, least, answered)

    def drawn(self) -> tuple[tuple[Floats, ...], list[str]]:
        """Draws of the new totals, one from each part of the fit, and what must be said beside them."""
        rested = self._rested()
        return tuple(self._totals(part, rested) for part in range(PARTS)), self._notes(float(np.median(rested)))

    def _rested(self) -> Floats:
        """The pause before each call once they are answered early, by a device that takes its median time."""
        middle_rank = np.full(len(self.calls), RANKS // 2)
        answers = self.fit.answer(0, self.works, before(self.calls), middle_rank)
        return before_if(self.calls, self._with(answers))

    def _totals(self, part: int, rested: Floats) -> Floats:
        """One draw of the new totals, from one part of the fit."""
        ranks = np.arange(len(self.calls)) * RANKS // len(self.calls)
        drawn = self.fit.answer(part, self.works, rested, np.random.default_rng([_SEED, part]).permutation(ranks))
        return self._with(drawn)

    def _with(self, answers: Floats) -> Floats:
        """The totals with the device's answers; calls without the stages keep theirs."""
        early = np.maximum(kept(self.calls) + answers + self.beyond + self.busy, self.least)
        return np.where(np.isnan(early) | ~self.which, self.calls.total, early)

    def _notes(self, rested: float) -> list[str]:
        """What must be said of it beside the numbers; with the usual pause before its calls."""
        fit, calls = self.fit, self.calls
        notes = (
            [f"as {fit.about} answers here, by {fit.remedy_calls:,} calls of {fit.date[:10]}"] if fit.about else []
        )
        usual, most = np.quantile(self.beyond, (0.5, 0.99))
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
        shortest, longest = min(tried), max(tried)
        if not shortest / _PAUSE_FACTOR <= rested <= longest * _PAUSE_FACTOR:
            notes.append(
                f"fitted on calls after pauses of {duration(shortest)} to {duration(longest)}, these come after "
                f"{duration(rested)}"
            )
        return notes


def _is_one_machine(calls: Calls, context: Context) -> bool:
    """Whether caller and server run on one machine, as they do where the fit was made."""
    if context.is_one_machine is not None:
        return context.is_one_machine
    client, server = calls.texts("client_machine"), calls.texts("server_machine")
    said = np.array([name is not None for name in client]) & np.array([name is not None for name in server])
    return bool(said.any() and (client[said] == server[said]).mean() > 0.5)


def _beyond(calls: Calls, context: Context, fit: Fit) -> Floats:
    """What of each call's wires is beyond the fit's, and kept: its method's usual way, and a way of its own."""
    if _is_one_machine(calls, context):
        return np.zeros(len(calls))
    own = wires(calls)
    usual = max(0.0, middle(own) - fit.wires_ns)
    return np.where(own > fit.wires_most_ns, own - fit.wires_ns, usual)


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
