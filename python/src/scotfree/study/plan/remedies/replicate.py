"""replicate: several servers keep one state, each answers reads (docs/groups.md).

A read's wait at its server becomes that of a server with its share of the reads: with random arrivals it goes as
u / (1 - u) of the server's utilisation u (Pollaczek and Khinchine), and u is divided by the servers. What writes
take of every server is not known from one method's calls and left out: a mostly reading service is assumed, and
said. An update takes longer: the trips between members that its answer waits for, each as long as a wire of this
method, and what was measured of the members' work (`plan/group.py`). That the service outlives a server has no
price here.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.figures.words import duration, percent
from scotfree.study.plan import group
from scotfree.study.plan.calls import Calls, Floats
from scotfree.study.plan.context import Context
from scotfree.study.plan.load import Load, load
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "replicate"
IS_OURS: Final = True
# A queue that never empties has no wait that follows from its utilisation.
_UTILISATION_MAX: Final = 0.98
# How well the utilisation is known: each is a draw of the forecast.
_FACTORS: Final = (0.8, 1.0, 1.25)


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls of one method would take."""
    return _update(calls, context) if context.is_update(calls.service, calls.method) else _read(calls, context)


def _read(calls: Calls, context: Context) -> Effect | Refused:
    waits = calls.ns("server_recv_queue")
    utilisation = _utilisation(load(calls))
    if np.isnan(waits).all() or utilisation is None:
        return Refused("server_recv_queue and server_app are needed, to know how long reads wait for one another")
    kept = [_kept(utilisation * factor, context.replicas) for factor in _FACTORS]
    totals = tuple(calls.total - np.nan_to_num(waits) * (1 - each) for each in kept)
    return Effect(totals, (_said_of_reads(utilisation, kept[1], context.replicas),))


def _utilisation(state: Load) -> float | None:
    """Of the server; the share of requests that find another one waiting is no less than it says."""
    known = [each for each in (state.utilisation, state.waiting_share) if each is not None]
    return max(known) if known else None


def _kept(utilisation: float, servers: int) -> float:
    """The part of a wait that is left with its share of the reads."""
    now = min(max(utilisation, 1e-6), _UTILISATION_MAX)
    then = now / servers
    return (then / (1 - then)) / (now / (1 - now))


def _said_of_reads(utilisation: float, kept: float, servers: int) -> str:
    return (
        f"its server is busy for {percent(min(utilisation, 1.0))} of the time; with reads spread over {servers} "
        f"servers (--replicas) {percent(kept)} of a wait at the server is left; that nearly all requests of the "
        "service are reads is assumed"
    )


def _update(calls: Calls, context: Context) -> Effect | Refused:
    wire = _wire(calls)
    if wire is None:
        return Refused("request_wire or response_wire is needed, to know how long a trip between members is")
    more = tuple(
        np.asarray(protocol.more_with(context.replicas) + protocol.trips_with(context.replicas) * wire)
        for protocol in group.PROTOCOLS
    )
    return Effect(tuple(calls.total + each for each in more), (_said_of_updates(more, wire, context.replicas),))


def _wire(calls: Calls) -> float | None:
    """One way between hosts, in the middle."""
    wires = np.concatenate([calls.ns("request_wire"), calls.ns("response_wire")])
    known = wires[~np.isnan(wires)]
    return float(np.median(known)) if len(known) else None


def _said_of_updates(more: tuple[Floats, ...], wire: float, servers: int) -> str:
    each = " and ".join(
        f"{duration(float(ns))} with {protocol.name}" for ns, protocol in zip(more, group.PROTOCOLS, strict=True)
    )
    return (
        f"a write of a group of {servers} (--replicas) takes {each} more than one server's ({duration(wire)} a "
        f"trip between members; {group.MEASURED_BY}): the price of a service that outlives a server"
    )
