"""How loaded a method's servers are, from nothing but its calls.

A remedy that answers early gains latency, not throughput: what a server can sustain stays what it was (thesis
3.6.2 measures both). So a forecast must know whether the callers wait for the server's work or for each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from scotfree.study.plan.calls import Calls

# From this share of requests on that find another one waiting before them, the queue never empties: with one
# server and random arrivals a utilisation of 0.7.
WAITING_MAX: Final = 0.5
# From so many requests on that wait at a server on average, likewise: a utilisation of 0.6 to 0.75.
WAITING_MEAN_MAX: Final = 1.0
UTILISATION_MAX: Final = 0.95


@dataclass(frozen=True)
class Load:
    """The load of one method's servers."""

    # Share of requests that reach a server while an earlier one still waits there; None if stages are missing
    # or calls are sampled, so that the earlier one may not be seen.
    waiting_share: float | None
    # Arrival rate x time of the application, per server; None if unknown. A server with many threads may have
    # more than 1.
    utilisation: float | None
    # Calls under way, on average.
    outstanding: float
    # Between the ends of two calls, on average, ns.
    each_ns: float = 0.0
    # Requests that wait at a server, on average: their rate x the time that one waits (Little), which sampled
    # calls tell as well. None if the stage is missing.
    waiting: float | None = None

    @property
    def is_saturated(self) -> bool:
        """Whether sustained throughput is the server's, whoever acknowledges."""
        if self.waiting_share is not None:
            return self.waiting_share >= WAITING_MAX
        if self.waiting is not None and self.waiting >= WAITING_MEAN_MAX:
            return True
        return self.utilisation is not None and self.utilisation >= UTILISATION_MAX


def load(calls: Calls) -> Load:
    """The load while these calls were made."""
    span = busy_span(calls)
    outstanding = float(np.dot(calls.total, calls.weight)) / span
    each_ns = span / float(calls.weight.sum())
    stages = ("client_send_queue", "request_stack", "request_wire", "server_recv_queue")
    if not calls.known(stages).any():
        return Load(None, None, outstanding, each_ns)
    known = calls.only(calls.known(stages))
    is_whole = float(known.weight.max()) <= 1.0
    waiting = _waiting_share(known, stages) if is_whole else None
    return Load(waiting, _utilisation(calls, span), outstanding, each_ns, _waiting(calls, each_ns))


def busy_span(calls: Calls) -> float:
    """The time in which calls were made, ns: pauses of far more than a call and the usual gap do not count."""
    order = np.argsort(calls.start, kind="stable")
    start, end = calls.start[order], calls.start[order] + calls.total[order]
    gaps = start[1:] - np.maximum.accumulate(end)[:-1]
    usual = np.median(calls.total) + (np.median(np.diff(start)) if len(gaps) else 0.0)
    return max(float(end.max() - gaps[gaps > 100 * usual].sum()), 1.0)


def _waiting_share(calls: Calls, stages: tuple[str, ...]) -> float:
    """Each request against the one before it at the same server; clocks of different machines do not enter:
    both times are the caller's clock plus durations."""
    arrival = calls.start + np.sum([calls.ns(stage) for stage in stages[:-1]], axis=0)
    begun = arrival + calls.ns(stages[-1])
    servers = np.unique([name or "" for name in calls.texts("server_machine")], return_inverse=True)[1]
    order = np.lexsort((arrival, servers))
    same = servers[order][1:] == servers[order][:-1]
    finds = (arrival[order][1:] < begun[order][:-1]) & same
    return float(finds.sum() / max(same.sum(), 1))


def _waiting(calls: Calls, each_ns: float) -> float | None:
    waits = calls.ns("server_recv_queue")
    known = ~np.isnan(waits)
    if not known.any():
        return None
    return float(np.average(waits[known], weights=calls.weight[known])) / each_ns / _servers(calls)


def _utilisation(calls: Calls, span: float) -> float | None:
    app = calls.ns("server_app")
    if np.isnan(app).all():
        return None
    return float(np.nansum(app * calls.weight)) / span / _servers(calls)


def _servers(calls: Calls) -> int:
    return len({name for name in calls.texts("server_machine") if name is not None}) or 1
