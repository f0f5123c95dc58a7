"""OTLP's metrics become series, counters as rates; JSON and protobuf alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import json_format
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    Sum,
    Summary,
    SummaryDataPoint,
)

from scotfree.study import schema
from scotfree.study.ingest.otlp_json import OtlpJson
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.reader import Reader, Source
from scotfree.study.trouble import Ledger

S = 1_000_000_000
DELTA, CUMULATIVE = 1, 2


def attributes(**of: str) -> list[KeyValue]:
    return [KeyValue(key=key.replace("_", "."), value=AnyValue(string_value=value)) for key, value in of.items()]


def number(time_s: int, value: float, start_s: int = 0, **of: str) -> NumberDataPoint:
    return NumberDataPoint(
        time_unix_nano=time_s * S, as_double=value, start_time_unix_nano=start_s * S, attributes=attributes(**of)
    )


def counter(name: str, points: list[NumberDataPoint], temporality: int, *, monotonic: bool = True) -> Metric:
    return Metric(
        name=name,
        sum=Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic),  # type: ignore[arg-type]
    )


def data(*metrics: Metric) -> MetricsData:
    found = MetricsData()
    resource = found.resource_metrics.add()
    resource.resource.attributes.extend(attributes(service_name="Cart", host_name="m1"))
    resource.scope_metrics.add().metrics.extend(metrics)
    return found


def read(reader: Reader, path: Path) -> tuple[list[dict[str, Any]], dict[str, int], int]:
    source = Source(path, 0, Ledger())
    batches = [batch for batch in reader.read(source) if batch.relation == "metric"]
    for batch in batches:
        batch.rows.validate(full=True)
        assert batch.rows.schema == schema.METRIC
    rows = pa.concat_tables([schema.METRIC.empty_table(), *(batch.rows for batch in batches)]).to_pylist()
    counts = {row["reason"]: row["count"] for row in source.ledger.table().to_pylist()}
    return rows, counts, sum(batch.records for batch in batches) + source.ledger.dropped()


def both(folder: Path, of: MetricsData) -> tuple[list[dict[str, Any]], dict[str, int], int]:
    (folder / "metrics.pb").write_bytes(of.SerializeToString())
    (folder / "metrics.json").write_text(json_format.MessageToJson(of, indent=None) + "\n")
    assert OtlpProto().recognises(folder / "metrics.pb", of.SerializeToString())
    found = read(OtlpProto(), folder / "metrics.pb")
    assert found == read(OtlpJson(), folder / "metrics.json")
    return found


def values(rows: list[dict[str, Any]]) -> list[tuple[str, int, float]]:
    return [(row["series"], row["ts_ns"] // S, row["value"]) for row in rows]


def test_a_gauge_is_its_value_with_its_labels(tmp_path: Path) -> None:
    points = [number(5, 0.5, rpc_method="Get", k8s_cluster_name="eu"), number(6, 0.25, host_name="m2")]
    integer = NumberDataPoint(time_unix_nano=7 * S, as_int=-3)
    of = data(Metric(name="system.cpu.utilization", gauge=Gauge(data_points=[*points, integer])))
    rows, counts, records = both(tmp_path, of)
    assert rows[0] == {
        "series": "cpu_util",
        "service": "Cart",
        "method": "Get",
        "cluster": "eu",
        "machine": "m1",
        "ts_ns": 5 * S,
        "value": 0.5,
    }
    assert rows[1]["machine"] == "m2"
    assert values(rows)[2] == ("cpu_util", 7, -3.0)
    assert (counts, records) == ({}, 3)


def test_a_cumulative_sum_is_a_rate_between_points_of_one_counter(tmp_path: Path) -> None:
    points = [
        number(10, 100, cpu_mode="user"),
        number(10, 7, cpu_mode="system"),
        number(12, 106, cpu_mode="user"),
        number(14, 8, cpu_mode="system"),
        number(16, 4, cpu_mode="user"),
    ]
    rows, counts, records = both(tmp_path, data(counter("process.cpu.time", points, CUMULATIVE)))
    # The last one fell: the counter began again at 0.
    assert values(rows) == [("cpu_used", 12, 3.0), ("cpu_used", 14, 0.25), ("cpu_used", 16, 1.0)]
    assert (counts, records) == ({}, 5)


def test_counters_go_on_in_the_next_message(tmp_path: Path) -> None:
    first = data(counter("scotfree.requests", [number(1, 10)], CUMULATIVE))
    second = data(counter("scotfree.requests", [number(3, 30)], CUMULATIVE))
    (tmp_path / "metrics.pb").write_bytes(first.SerializeToString() + second.SerializeToString())
    rows, _, records = read(OtlpProto(), tmp_path / "metrics.pb")
    assert (values(rows), records) == ([("rps", 3, 10.0)], 2)


def test_a_delta_is_a_rate_over_its_own_time(tmp_path: Path) -> None:
    points = [number(10, 30, start_s=4), number(12, 1), number(15, 9)]
    rows, counts, _ = both(tmp_path, data(counter("queue.done", points, DELTA)))
    assert values(rows) == [("queue.done", 10, 5.0), ("queue.done", 15, 3.0)]
    assert counts == {"a delta does not say since when": 1}


def test_what_goes_up_and_down_is_a_level(tmp_path: Path) -> None:
    of = data(counter("queue.length", [number(1, 4), number(2, 3)], CUMULATIVE, monotonic=False))
    assert values(both(tmp_path, of)[0]) == [("queue.length", 1, 4.0), ("queue.length", 2, 3.0)]


def test_counts_of_histograms_and_summaries_are_calls(tmp_path: Path) -> None:
    times = [(10 * S, 100), (20 * S, 150)]
    of = data(
        Metric(
            name="rpc.server.duration",
            histogram=Histogram(
                aggregation_temporality=CUMULATIVE,  # type: ignore[arg-type]
                data_points=[
                    HistogramDataPoint(time_unix_nano=time, count=count, sum=1e9) for time, count in times
                ],
            ),
        ),
        Metric(
            name="http.server.request.duration",
            exponential_histogram=ExponentialHistogram(
                aggregation_temporality=DELTA,  # type: ignore[arg-type]
                data_points=[
                    ExponentialHistogramDataPoint(start_time_unix_nano=5 * S, time_unix_nano=10 * S, count=20)
                ],
            ),
        ),
        Metric(
            name="other",
            summary=Summary(
                data_points=[SummaryDataPoint(time_unix_nano=time, count=count) for time, count in times]
            ),
        ),
    )
    assert values(both(tmp_path, of)[0]) == [("rps", 20, 5.0), ("rps", 10, 4.0), ("other_count", 20, 5.0)]


def test_time_in_which_processors_did_nothing_is_not_used_time(tmp_path: Path) -> None:
    points = [number(1, 0.9, cpu_mode="idle"), number(1, 0.1, cpu_mode="user")]
    of = data(Metric(name="system.cpu.utilization", gauge=Gauge(data_points=points)))
    assert values(both(tmp_path, of)[0]) == [("system.cpu.utilization.idle", 1, 0.9), ("cpu_util", 1, 0.1)]


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (number(0, 1), "a point has no time"),
        (number(5, float("nan")), "a value is no finite number"),
        (NumberDataPoint(time_unix_nano=5 * S), "a value is no finite number"),
        (number(2, 3), "a counter's point is not later than the one before"),
    ],
)
def test_what_is_no_point_is_dropped(tmp_path: Path, point: NumberDataPoint, reason: str) -> None:
    points = [number(2, 1), point, number(4, 9)]
    rows, counts, records = both(tmp_path, data(counter("scotfree.requests", points, CUMULATIVE)))
    assert values(rows) == [("rps", 4, 4.0)]
    assert (counts, records) == ({reason: 1}, 3)


@given(seed=st.data())
@settings(max_examples=60, deadline=None)
def test_any_bytes_end_in_rows_or_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, seed: st.DataObject
) -> None:
    points = [number(time, time * 2, rpc_method="Get") for time in range(1, 6)]
    of = data(counter("scotfree.requests", points, CUMULATIVE), Metric(name="g", gauge=Gauge(data_points=points)))
    whole = bytearray(of.SerializeToString())
    for _ in range(seed.draw(st.integers(0, 3))):
        whole[seed.draw(st.integers(0, len(whole) - 1))] = seed.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("otlp") / "metrics.pb"
    path.write_bytes(whole[: seed.draw(st.integers(0, len(whole)))])
    rows, _, _ = read(OtlpProto(), path)
    assert len(rows) <= 10
