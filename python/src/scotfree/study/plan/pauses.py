"""How long nothing was under way at a caller before each call: who has rested is woken later.

A processor that idles goes to sleep, so a call after a long pause takes longer than one on the heels of another.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.plan.calls import SINCE_OTHERS, Calls, Floats
from scotfree.study.plan.load import busy_span

_QUARTERS: Final = (0.25, 0.75)


def before(calls: Calls) -> Floats:
    """The pause before each call, ns; 0 while another one of its machine is under way."""
    return _pauses(calls, calls.total)


def before_if(calls: Calls, totals: Floats) -> Floats:
    """The pauses if the calls took `totals`: callers keep their pace if they have one, else rest as they did.

    They have one if it is steadier than their rest.
    """
    rests = before(calls)
    return _pauses(calls, totals) if _spread(_from_start_to_start(calls)) <= _spread(rests) else rests


def _pauses(calls: Calls, totals: Floats) -> Floats:
    if float(calls.weight.max(initial=1.0)) > 1.0:
        return _usual(calls, totals)
    pauses = np.full(len(calls), np.nan)
    for own in _by_machine(calls):
        ends = np.maximum.accumulate(calls.start[own] + totals[own])
        pauses[own[1:]] = calls.start[own[1:]] - ends[:-1]
    # What its caller calls otherwise keeps it awake as well.
    pauses = np.maximum(np.fmin(pauses, calls.floats(SINCE_OTHERS)), 0.0)
    return np.where(np.isnan(pauses), _middle(pauses), pauses)


def _usual(calls: Calls, totals: Floats) -> Floats:
    """Of sampled calls, whose neighbours are not all seen: what their mean rate leaves."""
    machines = len(_by_machine(calls))
    between = busy_span(calls) / float(calls.weight.sum()) * machines
    return np.full(len(calls), max(0.0, between - float(np.median(totals))))


def _from_start_to_start(calls: Calls) -> Floats:
    gaps = [np.diff(calls.start[own]) for own in _by_machine(calls)]
    return np.concatenate([np.empty(0), *gaps])


def _by_machine(calls: Calls) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Of each machine that calls, its calls in the order of time."""
    machines = np.unique([name or "" for name in calls.texts("client_machine")], return_inverse=True)[1]
    order = np.lexsort((calls.start, machines))
    return np.split(order, np.flatnonzero(np.diff(machines[order])) + 1)


def _spread(values: Floats) -> float:
    if len(values) == 0:
        return 0.0
    low, high = np.quantile(values, _QUARTERS)
    return float(high - low)


def _middle(values: Floats) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if len(known) else 0.0
