"""The inputs that figures lack, named the way a user would add them; and when a figure is complete."""

from __future__ import annotations

from typing import Final

from scotfree.study.figures.result import Coverage

CALLS: Final = "client spans (kind client) that succeeded"
SAMPLES: Final = "at least 100 successful calls of one method, as their client saw them"
STAGES: Final = (
    "the nine stages of a call: attributes rpc.stage.client_send_queue to rpc.stage.client_recv_queue "
    "on client spans"
)
SERVER_SPANS: Final = "the server's span beside the client's, with the client's span as its parent"
SIZES: Final = "request and response sizes: attributes rpc.request.size and rpc.response.size on client spans"
CYCLES: Final = "cycles per call: attribute rpc.cpu.cycles on spans"
PROFILES: Final = (
    "profiles of processor time with service.name (pprof, perf script, OTLP profiles or folded stacks)"
)
CLUSTERS: Final = (
    "the cluster of both sides: resource attribute k8s.cluster.name, cloud.availability_zone or cloud.region "
    "in client and server spans"
)
HEDGES: Final = "which calls repeat another: a span link between hedged attempts"
ERRORS: Final = "spans of calls that failed, with their status (tail sampling must keep them)"
GROWTH: Final = "the metrics rps and cpu_cycles over at least 14 days"
LOAD: Final = "the metrics cpu_used and cpu_limit with labels service, cluster and machine"
EXOGENOUS: Final = (
    "the metrics cpu_util, mem_bw, long_wakeup_rate and cpi with the label cluster, "
    "of the time and the clusters of the traces"
)

# Every figure says on how many calls it rests; from this share on it is called complete.
COMPLETE_MIN: Final = 0.95


def coverage(share: float) -> Coverage:
    """How a figure is marked whose input is known of a share of what it is about."""
    if share <= 0:
        return Coverage.ABSENT
    return Coverage.COMPLETE if share >= COMPLETE_MIN else Coverage.PARTIAL
