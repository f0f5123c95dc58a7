"""The state of clusters and the calls in them, by half hours (F17, F18, Table 2)."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis import nearby
from scotfree.study.analysis.calls import HALF_HOUR_NS, window
from scotfree.study.analysis.histogram import nearest_rank
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.place import local_calls
from scotfree.study.analysis.selection import selected
from scotfree.study.analysis.study import Study

# Table 2: series of `metric` and what they say.
VARIABLES: Final = {
    "cpu_util": "share of processor time used",
    "mem_bw": "memory bandwidth used, GB/s",
    "long_wakeup_rate": "share of scheduling events longer than 50 µs",
    "cpi": "processor cycles per instruction",
}
# A half hour of a cluster needs that many calls of a method: then one may lie above its P95.
WINDOW_SAMPLES_MIN: Final = 20
BUCKETS: Final = 10
_BY: Final = ("method_id", "server_cluster", "window")


@once
def series(study: Study) -> pa.Table:
    """variable, service (null: the cluster's own), cluster, window and value: means of half hours."""
    metric = study.metric
    rows = metric.filter(metric.series.isin(list(VARIABLES)) & metric.cluster.notnull())
    rows = rows.mutate(window=window(rows.ts_ns), variable=rows.series)
    means = rows.group_by(["variable", "service", "cluster", "window"]).agg(value=rows.value.mean())
    return study.engine.arrow(means)


@once
def points(study: Study) -> pa.Table:
    """variable, method_id, server_cluster, window, value: what a selected method's calls met.

    Of a service's own series, and where it has none in this variable the cluster's.
    """
    found = series(study)
    parts = [_empty_points()]
    for one in selected(study):
        for variable in VARIABLES:
            rows = _own(found.filter(pc.equal(found["variable"], variable)), one.service)
            columns = {
                "variable": [variable] * rows.num_rows,
                "method_id": [one.method_id] * rows.num_rows,
                "server_cluster": rows["cluster"],
                "window": rows["window"],
                "value": rows["value"],
            }
            parts.append(pa.table(columns).cast(_POINTS))
    return pa.concat_tables(parts)


_POINTS: Final = pa.schema(
    [
        ("variable", pa.string()),
        ("method_id", pa.int64()),
        ("server_cluster", pa.string()),
        ("window", pa.int64()),
        ("value", pa.float64()),
    ]
)


def _empty_points() -> pa.Table:
    return _POINTS.empty_table()


def _own(rows: pa.Table, service: str) -> pa.Table:
    own = rows.filter(pc.equal(rows["service"], service))
    return own if own.num_rows else rows.filter(pc.is_null(rows["service"]))


@once
def tails(study: Study) -> pa.Table:
    """method_id, server_cluster, window, samples, p50 and p95 (ns) of local calls, of windows with
    calls enough."""
    calls = local_calls(study).calls
    placed = calls.filter(calls.server_cluster.notnull()).mutate(window=window(calls.start_ns))
    found = nearest_rank(placed, study.engine, list(_BY), [nearby.MEDIAN, nearby.TAIL])
    return found.filter(pc.greater_equal(found["samples"], WINDOW_SAMPLES_MIN))


@once
def met(study: Study) -> pa.Table:
    """The rows of `points` in whose window there are calls enough, with their p50 and p95."""
    latency = tails(study).select([*_BY, "p50", "p95", "samples"])
    return points(study).join(latency.cast(_keyed(latency)), list(_BY), join_type="inner").combine_chunks()


def _keyed(table: pa.Table) -> pa.Schema:
    kinds = {"method_id": pa.int64(), "window": pa.int64(), "server_cluster": pa.string()}
    return pa.schema([pa.field(field.name, kinds.get(field.name, field.type)) for field in table.schema])


@once
def buckets(study: Study) -> pa.Table:
    """Per method, variable and bucket of its value `nearby.around` the P95; and the mean value of its windows.

    Ten buckets of equally many windows: the first has the lowest values.
    """
    placed = _bucketed(points(study))
    if placed.num_rows == 0:
        return placed
    calls = local_calls(study).calls
    calls = calls.filter(calls.server_cluster.notnull()).mutate(window=window(calls.start_ns))
    known = study.engine.register("exogenous_buckets", placed.drop_columns(["value"]))
    met_calls = calls.inner_join(known, list(_BY))
    by = ["method_id", "variable", "bucket"]
    found = nearby.around(study, met_calls, by, nearby.TAIL)
    values = placed.group_by(by).aggregate([("value", "mean")]).rename_columns({"value_mean": "value"})
    kinds = {"method_id": pa.int64(), "bucket": pa.int64(), "variable": pa.string()}
    typed = pa.schema([pa.field(field.name, kinds.get(field.name, field.type)) for field in found.schema])
    return found.cast(typed).join(values, by, join_type="inner").sort_by([(name, "ascending") for name in by])


def _bucketed(table: pa.Table) -> pa.Table:
    """The points, each with its bucket among those of its method and variable."""
    parts = []
    for method in pc.unique(table["method_id"]).to_pylist():
        for variable in VARIABLES:
            is_of = pc.and_(pc.equal(table["method_id"], method), pc.equal(table["variable"], variable))
            rows = table.filter(is_of)
            parts.append(rows.append_column("bucket", pa.array(bucket_of(rows["value"].to_numpy()), pa.int64())))
    return pa.concat_tables(parts) if parts else table.append_column("bucket", pa.array([], pa.int64()))


def bucket_of(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """0 to BUCKETS - 1 by rank; equal values are in one bucket."""
    ordered = np.sort(values)
    first = np.searchsorted(ordered, values)
    found: np.ndarray[Any, Any] = first * BUCKETS // max(1, len(values))
    return found


def window_start_ns(number: int) -> int:
    """When a window begins."""
    return number * HALF_HOUR_NS
