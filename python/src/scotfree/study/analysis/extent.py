"""How much data there is (section 2.1): traces, clusters, time, sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study

_TRACES = pa.schema([pa.field("traces", pa.int64())])


@dataclass(frozen=True)
class Extent:
    """Counts of one store; times in ns since 1970, None without calls."""

    spans: int
    traces: int
    # That call or are called.
    services: int
    clusters: int
    machines: int
    first_ns: int | None
    last_ns: int | None
    # Of sample_weight; None where no call says it.
    weight_least: float | None
    weight_greatest: float | None
    # Of metrics.
    metric_first_ns: int | None
    metric_last_ns: int | None


def _traces(calls: pa.Table) -> pa.Table:
    """Traces of one partition: no other has one of them."""
    return pa.table({"traces": [pc.count_distinct(calls["trace_id"]).as_py()]}, schema=_TRACES)


@once
def extent(study: Study) -> Extent:
    """Counts them."""
    span = study.span
    one = study.engine.arrow(
        span.agg(
            spans=span.count(),
            first_ns=span.start_ns.min(),
            last_ns=span.start_ns.max(),
            weight_least=span.sample_weight.min(),
            weight_greatest=span.sample_weight.max(),
        )
    ).to_pylist()[0]
    metric = study.metric
    times = study.engine.arrow(
        metric.agg(metric_first_ns=metric.ts_ns.min(), metric_last_ns=metric.ts_ns.max())
    ).to_pylist()[0]
    traces = study.engine.map_partitions(["trace_id"], _traces, _TRACES)
    return Extent(
        **one,
        **times,
        traces=pc.sum(traces["traces"]).as_py() or 0,
        services=_names(study, ["service", "client_service"]),
        clusters=_names(study, ["server_cluster", "client_cluster"]),
        machines=_names(study, ["server_machine", "client_machine"]),
    )


def _names(study: Study, columns: list[str]) -> int:
    """How many different names stand in two columns together."""
    found: set[Any] = set()
    for column in columns:
        names = study.span.filter(study.span[column].notnull()).select(column).distinct()
        found |= set(study.engine.arrow(names)[column].to_pylist())
    return len(found)
