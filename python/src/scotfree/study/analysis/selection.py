"""The methods that are looked at one by one (Table 1): of the paper's services, or those that take most time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis.calls import timed, weight
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import volumes

COUNT: Final = 8


@dataclass(frozen=True)
class Published:
    """A row of Table 1."""

    category: str
    service: str
    client: str
    size_bytes: int
    does: str


TABLE_1: Final = (
    Published("storage", "Bigtable", "KV-Store", 1_000, "search value"),
    Published("storage", "Network Disk", "Bigtable", 32_000, "read from SSD"),
    Published("storage", "SSD cache", "BigQuery", 400, "look up streaming data"),
    Published("storage", "Video Metadata", "Video Search", 32_000, "get metadata"),
    Published("storage", "Spanner", "Network information service", 800, "read rows"),
    Published("compute-intensive", "F1", "F1", 75, "process data packet"),
    Published("compute-intensive", "ML Inference", "ML Client", 512, "perform inference"),
    Published("latency-sensitive", "KV-Store", "Recommendation service", 128, "search value"),
)


@dataclass(frozen=True)
class Selected:
    """A method that stands for its service."""

    method_id: int
    service: str
    method: str
    # Share of the time of all successful calls of all methods.
    time_share: float
    # The row of Table 1 with this service's name.
    published: Published | None


def plain_name(name: str) -> str:
    """A name without case, spaces and dashes: `KV-Store` and `kv_store` are one."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


@once
def selected(study: Study) -> tuple[Selected, ...]:
    """At most eight services, each with one method: first those of Table 1, then those that take most time.

    It is the most called method of a service of Table 1, and of others the one that takes most time.
    Only methods with enough successful samples (R3) are taken; so nothing may be left.
    """
    best: dict[str, Selected] = {}
    for candidate in _by_time(study):
        best.setdefault(candidate.service, candidate)
    best |= {one.service: one for one in reversed(_by_calls(study)) if one.published}
    ordered = sorted(best.values(), key=lambda one: (one.published is None, -one.time_share, one.method_id))
    return tuple(sorted(ordered[:COUNT], key=lambda one: (-one.time_share, one.method_id)))


def _by_calls(study: Study) -> list[Selected]:
    return [one for one, _ in sorted(_candidates(study), key=lambda pair: (-pair[1], pair[0].method_id))]


def _by_time(study: Study) -> list[Selected]:
    return sorted((one for one, _ in _candidates(study)), key=lambda one: (-one.time_share, one.method_id))


@once
def _candidates(study: Study) -> list[tuple[Selected, float]]:
    """Methods with enough samples, and how often each was called."""
    table = volumes(study)
    good = table.filter(pc.equal(table["status"], schema.STATUS_OK))
    by = ["method_id", "service", "method"]
    methods = good.group_by(by).aggregate([("samples", "sum"), ("calls", "sum"), ("time_ns", "sum")]).to_pylist()
    everything = sum(row["time_ns_sum"] for row in methods)
    published = {plain_name(row.service): row for row in TABLE_1}
    return [
        (
            Selected(
                row["method_id"],
                row["service"],
                row["method"],
                row["time_ns_sum"] / everything,
                published.get(plain_name(row["service"])),
            ),
            row["calls_sum"],
        )
        for row in methods
        if row["samples_sum"] >= schema.SAMPLES_MIN and row["time_ns_sum"] > 0
    ]


def of_selected(study: Study, calls: Any) -> Any:
    """The calls of the selected methods."""
    return calls.filter(calls.method_id.isin([one.method_id for one in selected(study)] or [-1]))


def clients(study: Study) -> pa.Table:
    """method_id, client_service, calls and time_ns: who calls the selected methods, most first."""
    span = of_selected(study, timed(study.span))
    by = span.group_by(["method_id", "client_service"])
    time = span.total_ns.cast("float64") * weight(span)
    found = by.agg(calls=weight(span).sum(), time_ns=time.sum())
    return study.engine.arrow(found.order_by([found.method_id, found.calls.desc(), found.client_service]))
