"""co-locate: callers and servers of one method in one cluster (SOSP 2023, section 5, placement).

A call across clusters gets, for each of its two wires, the median that the method has within clusters.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study import schema
from scotfree.study.figures.words import percent
from scotfree.study.plan.calls import Calls, Truths
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import middle
from scotfree.study.plan.price import Effect, Refused

NAME: Final = "co-locate"
IS_OURS: Final = False
# A median of the wires within clusters needs so many calls.
_WITHIN_MIN: Final = 30


def forecast(calls: Calls, context: Context) -> Effect | Refused:
    """What the calls would take within one cluster."""
    across, within = _places(calls)
    wires = calls.known(schema.WIRES)
    if not (across | within).any():
        return Refused("the clusters of caller and server are not known (k8s.cluster.name in both spans)")
    if not across.any():
        return Refused("all of its calls stay within a cluster")
    if not (across & wires).any() or (within & wires).sum() < _WITHIN_MIN:
        return Refused(
            f"request_wire and response_wire are needed of calls across clusters and of {_WITHIN_MIN} within one"
        )
    saved = np.zeros(len(calls))
    for stage in schema.WIRES:
        time = calls.ns(stage)
        saved += np.where(across & wires, np.maximum(time - middle(time[within & wires]), 0.0), 0.0)
    share = float(calls.weight[across].sum() / calls.weight.sum())
    return Effect((calls.total - saved,), (f"{percent(share)} of its calls cross clusters",))


def _places(calls: Calls) -> tuple[Truths, Truths]:
    """Which calls cross clusters, which stay in one; neither where a side's is not known."""
    client, server = calls.texts("client_cluster"), calls.texts("server_cluster")
    known = np.array([a is not None and b is not None for a, b in zip(client, server, strict=True)])
    same: Truths = np.asarray(client == server)
    return known & ~same, known & same
