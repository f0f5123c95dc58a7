"""rebalance: load spread so that queues of loaded machines are those of the median one (section 5, scheduling).

Each call's wait at a server keeps its rank among those of its machine and takes the time that the machine with the
median wait has at that rank, if that is less.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from scotfree.study.plan.calls import Calls, Floats, Integers, Truths
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "rebalance"
IS_OURS: Final = False
# The queues at the server.
_QUEUES: Final = ("server_recv_queue", "server_send_queue")
# Fewer calls say nothing of a machine's queue; fewer machines have no median that is another's.
_CALLS_MIN: Final = 30
_PLACES_MIN: Final = 3


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take."""
    known = calls.known(_QUEUES[:1])
    if not known.any():
        return Refused("server_recv_queue is not known")
    queue = np.nansum([calls.ns(stage) for stage in _QUEUES], axis=0)
    for column in ("server_machine", "server_cluster"):
        places = _places(calls.texts(column), queue, known)
        if len(places) >= _PLACES_MIN:
            spread = _spread(queue, places)
            note = f"over {len(places)} {column.removeprefix('server_')}s; that one of them does the work as well"
            return Effect((calls.total - queue + spread,), (f"{note} as another is assumed",))
    return Refused(
        f"the servers' machines or clusters are needed (host.name), {_PLACES_MIN} with {_CALLS_MIN} calls each"
    )


def _places(names: Any, queue: Floats, known: Truths) -> list[Integers]:
    """The rows of each place with calls enough, ordered by its median wait."""
    said = np.array([name or "" for name in names])
    rows = [np.flatnonzero((said == name) & known) for name in np.unique(said) if name]
    return sorted(
        (each for each in rows if len(each) >= _CALLS_MIN), key=lambda each: float(np.median(queue[each]))
    )


def _spread(queue: Floats, places: list[Integers]) -> Floats:
    """The waits if each place had those of the median one, where they are less."""
    median = np.sort(queue[places[(len(places) - 1) // 2]])
    spread = queue.copy()
    for rows in places:
        ranks = np.argsort(np.argsort(queue[rows], kind="stable"), kind="stable")
        spread[rows] = np.minimum(queue[rows], median[ranks * len(median) // len(rows)])
    return spread
