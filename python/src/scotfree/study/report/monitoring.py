"""The live counterparts of a report: rules for Prometheus and a dashboard for Grafana, made from one list.

What they count on: the histogram `traces_span_metrics_duration_milliseconds` of the OpenTelemetry collector's
span-metrics connector (its labels service_name, span_name, span_kind, status_code), and what our daemons say of
themselves (scotfree_*, histograms of their requests among them). Client and server records are of the same calls,
so the difference of their sums is tax; a queue's share of it needs the stages, of which only the study knows.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DURATION = "traces_span_metrics_duration_milliseconds"
RULES_FILE, DASHBOARD_FILE = "scotfree.rules.yml", "scotfree.dashboard.json"


@dataclass(frozen=True)
class Recorded:
    """A series that Prometheus computes, and how the dashboard shows it."""

    name: str
    expression: str
    title: str
    # Grafana's name of the unit.
    unit: str
    legend: str


@dataclass(frozen=True)
class Alert:
    """A condition that somebody should know of."""

    name: str
    expression: str
    lasts: str
    says: str


def _sum(kind: str, part: str, by: str) -> str:
    return f'sum by ({by}) (rate({DURATION}_{part}{{span_kind="SPAN_KIND_{kind}"}}[5m]))'


def _quantile(percent: int, by: str, buckets: str) -> str:
    # Daemons have a series of every kind: of what did not happen there is no quantile, and NaN would spoil means.
    return f"histogram_quantile(0.{percent}, sum by (le, {by}) (rate({buckets}[5m]))) >= 0"


_METHOD = "service_name, span_name"
RECORDED = (
    Recorded(
        "method:rpc_completion_ms:p95",
        f"histogram_quantile(0.95, sum by (le, {_METHOD}) "
        f'(rate({DURATION}_bucket{{span_kind="SPAN_KIND_CLIENT", status_code!="STATUS_CODE_ERROR"}}[5m])))',
        "P95 completion time by method",
        "ms",
        "{{service_name}} {{span_name}}",
    ),
    Recorded("fleet:rpc_calls:rate5m", _sum("CLIENT", "count", ""), "Calls per second", "reqps", "calls"),
    Recorded(
        "fleet:rpc_tax:share",
        f"clamp_min(1 - {_sum('SERVER', 'sum', '')} / {_sum('CLIENT', 'sum', '')}, 0)",
        "Tax as a share of the calls' time",
        "percentunit",
        "tax",
    ),
    Recorded(
        "service:rpc_errors:share",
        f'sum by (service_name) (rate({DURATION}_count{{status_code="STATUS_CODE_ERROR"}}[5m])) / '
        f"sum by (service_name) (rate({DURATION}_count[5m]))",
        "Calls that fail, by service",
        "percentunit",
        "{{service_name}}",
    ),
    Recorded(
        "client:scotfree_early:share",
        "sum by (instance) (rate(scotfree_client_completed_early_total[5m])) / "
        "sum by (instance) (rate(scotfree_client_completed_total[5m]))",
        "Requests that a device completed, by client",
        "percentunit",
        "{{instance}}",
    ),
    *(
        Recorded(
            f"client:scotfree_request_seconds:p{percent}",
            _quantile(percent, "instance, kind", "scotfree_front_request_duration_seconds_bucket"),
            f"P{percent} of Redis clients' requests, by proxy or sidecar and kind",
            "s",
            "{{instance}} {{kind}}",
        )
        for percent in (50, 99)
    ),
    Recorded(
        "proxy:scotfree_log_write_seconds:p99",
        _quantile(99, "instance", "scotfree_proxy_log_write_duration_seconds_bucket"),
        "P99 until a proxy's log holds a record",
        "s",
        "{{instance}}",
    ),
    Recorded(
        "server:scotfree_redis_seconds:p99",
        _quantile(99, "instance, kind", "scotfree_redis_request_duration_seconds_bucket"),
        "P99 of requests at the Redis behind, by proxy or sidecar and kind",
        "s",
        "{{instance}} {{kind}}",
    ),
    Recorded(
        "client:scotfree_traces_lost:share",
        "sum by (instance) (rate(scotfree_trace_lost_total[5m])) / "
        "sum by (instance) (rate(scotfree_trace_recorded_total[5m]))",
        "Call records lost, by client",
        "percentunit",
        "{{instance}}",
    ),
    Recorded(
        "server:scotfree_backlog:requests",
        "sum by (instance) (scotfree_server_executing + scotfree_server_unstable)",
        "Requests in a server that wait or run, by server",
        "short",
        "{{instance}}",
    ),
)
ALERTS = (
    Alert(
        "RpcTailGrew",
        "method:rpc_completion_ms:p95 > 2 * avg_over_time(method:rpc_completion_ms:p95[1d] offset 1h)",
        "15m",
        "The P95 of {{ $labels.service_name }} {{ $labels.span_name }} is more than twice that of the last day.",
    ),
    Alert(
        "RpcTaxGrew",
        "fleet:rpc_tax:share > 1.5 * avg_over_time(fleet:rpc_tax:share[1d] offset 1h)",
        "30m",
        "Tax is more than half as much again of the calls' time as on the last day: make a report.",
    ),
    Alert(
        "RpcErrorsMany",
        "service:rpc_errors:share > 0.05",
        "10m",
        "More than one call in twenty of {{ $labels.service_name }} fails.",
    ),
    Alert(
        "RedisRequestsSlow",
        "client:scotfree_request_seconds:p99 > 0.001 and client:scotfree_request_seconds:p99 > "
        "2 * avg_over_time(client:scotfree_request_seconds:p99[1d] offset 1h)",
        "15m",
        "The P99 of {{ $labels.kind }} requests at {{ $labels.instance }} is above 1 ms and more than twice that "
        "of the last day: look at the P99 of the log and of the Redis.",
    ),
    Alert(
        "CallRecordsLost",
        "client:scotfree_traces_lost:share > 0.01",
        "10m",
        "More than one call record in a hundred of {{ $labels.instance }} is lost: the study sees too little.",
    ),
)


def rules() -> str:
    """Prometheus' rule file: YAML, of which JSON's strings are a part."""
    lines = ["# Made by `scot study monitoring`.", "groups:", "  - name: scotfree-recorded", "    rules:"]
    for each in RECORDED:
        lines += [f"      - record: {each.name}", f"        expr: {json.dumps(each.expression)}"]
    lines += ["  - name: scotfree-alerts", "    rules:"]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.lasts}",
            "        annotations:",
            f"          summary: {json.dumps(alert.says)}",
        ]
    return "\n".join(lines) + "\n"


def dashboard() -> str:
    """Grafana's dashboard: a panel for each recorded series, its source chosen on import."""
    panels = [_panel(number, each) for number, each in enumerate(RECORDED)]
    found = {
        "title": "RPC tax",
        "uid": "scotfree-rpc-tax",
        "schemaVersion": 39,
        "tags": ["scotfree"],
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {
            "list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]
        },
        "panels": panels,
    }
    return json.dumps(found, indent=1) + "\n"


def _panel(number: int, each: Recorded) -> dict[str, Any]:
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": each.title,
        "datasource": source,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": each.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "table", "placement": "right", "calcs": ["lastNotNull", "max"]}},
        "targets": [
            {"refId": "A", "datasource": source, "expr": f"topk(20, {each.name})", "legendFormat": each.legend}
        ],
    }
