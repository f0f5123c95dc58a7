"""Names of metrics and the series they mean."""

import pytest

from scotfree.study import schema
from scotfree.study.ingest.series import SERIES, series_of


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("rpc.server.duration", "rps"),
        ("rpc_server_duration_milliseconds_count", "rps"),
        ("process.cpu.time", "cpu_used"),
        ("process_cpu_seconds_total", "cpu_used"),
        ("container_cpu_usage_seconds_total", "cpu_used"),
        ("k8s.container.cpu.limit", "cpu_limit"),
        ("system.cpu.utilization", "cpu_util"),
        ("scotfree_requests_total", "rps"),
        ("scotfree_cpi", "cpi"),
        ("queue.length", "queue.length"),
        ("queue_length_total", "queue_length_total"),
        ("", ""),
    ],
)
def test_names_mean_series(name: str, series: str) -> None:
    assert series_of(name) == series


def test_every_series_of_the_figures_has_a_name() -> None:
    assert set(SERIES.values()) == set(schema.METRIC_SERIES)
