"""Which name of a metric means which series of the study: one table for OTLP and Prometheus.

Keys are names of OpenTelemetry's semantic conventions, and of our own metrics (`scotfree_*`). Prometheus writes
the same names with `_` for `.` and with a unit and `_total` behind: both spellings are one key here. A name that
is not in the table keeps its own: it is stored, and no figure uses it.
"""

from __future__ import annotations

import re
from typing import Final

# Each series' unit stands at schema.METRIC_SERIES. All that count up are taken as rates per second first: calls
# per second, seconds of processor time per second (which is processors), cycles per second.
SERIES: Final[dict[str, str]] = {
    # Requests per second. A histogram's count is how many calls it saw.
    "rpc_server_duration": "rps",
    "rpc_server_call_duration": "rps",
    "rpc_server_requests": "rps",
    "http_server_request_duration": "rps",
    "http_server_duration": "rps",
    "grpc_server_handled": "rps",
    "scotfree_requests": "rps",
    "scotfree_rps": "rps",
    # Processors used and allowed.
    "process_cpu_time": "cpu_used",
    "process_cpu": "cpu_used",
    "container_cpu_time": "cpu_used",
    "container_cpu_usage": "cpu_used",
    "k8s_pod_cpu_time": "cpu_used",
    "k8s_pod_cpu_usage": "cpu_used",
    "scotfree_cpu_used": "cpu_used",
    "k8s_container_cpu_limit": "cpu_limit",
    "kube_pod_container_resource_limits_cpu": "cpu_limit",
    "scotfree_cpu_limit": "cpu_limit",
    # Share of the processors' time.
    "system_cpu_utilization": "cpu_util",
    "process_cpu_utilization": "cpu_util",
    "k8s_node_cpu_utilization": "cpu_util",
    "scotfree_cpu_util": "cpu_util",
    # No convention names these.
    "scotfree_cpu_cycles": "cpu_cycles",
    "scotfree_mem_bw": "mem_bw",
    "scotfree_long_wakeup_rate": "long_wakeup_rate",
    "scotfree_cpi": "cpi",
}
# What Prometheus writes behind a name: units and the mark of a counter.
_SUFFIXES: Final = ("_total", "_count", "_seconds", "_milliseconds", "_ratio")


def series_of(name: str) -> str:
    """The series that a metric's name means; the name itself if it is none of ours."""
    plain = re.sub(r"[^0-9A-Za-z_]", "_", name)
    while plain not in SERIES:
        shorter = next((plain.removesuffix(end) for end in _SUFFIXES if plain.endswith(end)), plain)
        if shorter == plain:
            return name
        plain = shorter
    return SERIES[plain]
