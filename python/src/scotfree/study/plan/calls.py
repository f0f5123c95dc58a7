"""The calls of one method, as columns in memory: what a forecast starts from."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import ibis
import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import bootstrap
from scotfree.study.analysis.calls import timed, weight
from scotfree.study.analysis.study import Study

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
# Service and method.
Name = tuple[str, str]

# Of a method with more calls about as many are taken, the same ones each time.
CALLS_MAX: Final = 200_000
_COLUMNS: Final = (
    "trace_id",
    "span_id",
    "start_ns",
    "total_ns",
    *schema.STAGE_COLUMNS,
    "req_bytes",
    "resp_bytes",
    "req_wire_bytes",
    "resp_wire_bytes",
    "sample_weight",
    "cpu_ns",
    "client_machine",
    "server_machine",
    "client_cluster",
    "server_cluster",
    "is_hedge",
)
# A column that a method's calls have beside: see `_since_others`.
SINCE_OTHERS: Final = "since_others_ns"
# How an answer "there is none" is written (gRPC, HTTP, and what readers make of both).
NOT_FOUND: Final = ("NOT_FOUND", "NotFound", "not_found", "Not Found", "404", "5")


@dataclass(frozen=True)
class Calls:
    """Successful calls of a method whose total is known (R1)."""

    method_id: int
    service: str
    method: str
    # Of the time of all successful calls of all methods.
    time_share: float
    table: pa.Table

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def ns(self, stage: str) -> Floats:
        """A stage's time of each call; NaN where it is not known."""
        return self.floats(f"{stage}_ns")

    def floats(self, column: str) -> Floats:
        """A column of numbers; NaN where it is not known."""
        values: Floats = self.table[column].cast(pa.float64()).to_numpy()
        return values

    def texts(self, column: str) -> np.ndarray[Any, Any]:
        """A column of names; None where it is not known."""
        names: np.ndarray[Any, Any] = self.table[column].cast(pa.string()).to_numpy(zero_copy_only=False)
        return names

    @cached_property
    def total(self) -> Floats:
        """From call to resumed caller, in ns."""
        return self.floats("total_ns")

    @cached_property
    def start(self) -> Floats:
        """When each was made, in ns since the first of these."""
        starts = self.table["start_ns"].to_numpy()
        since: Floats = (starts - starts.min()).astype(np.float64)
        return since

    @cached_property
    def weight(self) -> Floats:
        """For how many calls each stands (R7)."""
        return np.nan_to_num(self.floats("sample_weight"), nan=1.0)

    @cached_property
    def group(self) -> Integers:
        """The group of traces that each is resampled with."""
        return _groups(self.table)

    def known(self, stages: tuple[str, ...]) -> Truths:
        """Which calls have all of these stages."""
        which: Truths = np.all([~np.isnan(self.ns(stage)) for stage in stages], axis=0)
        return which

    def only(self, which: Truths) -> Calls:
        """Some of the calls."""
        chosen = self.table.filter(pa.array(which))
        return Calls(self.method_id, self.service, self.method, self.time_share, chosen)


def methods(study: Study, limit: int, only: Collection[Name] | None = None) -> Iterator[Calls]:
    """The methods that take most time, each with enough samples (R3), the first the one that takes most.

    With `only`, of those of these services and names.
    """
    with study.store.at_rest():
        rows = _by_time(study)
        whole = sum(row["time"] for row in rows) or 1.0
        chosen = [row for row in rows if _is_enough(row) and (only is None or _name(row) in only)]
        waited = study.engine.register("not_found", study.engine.arrow(_not_found(study.span)))
        for row in chosen[:limit]:
            found = _read(study, waited, row["method_id"], -(-row["samples"] // CALLS_MAX))
            yield Calls(row["method_id"], *_name(row), row["time"] / whole, found)


def names(study: Study) -> list[Name]:
    """Of all methods that have enough samples, in the order of `methods`."""
    with study.store.at_rest():
        return [_name(row) for row in _by_time(study) if _is_enough(row)]


def nested_calls(study: Study) -> dict[Name, float]:
    """Of each method how many calls one of its own makes, on average."""
    span: Any = study.span
    made = span.filter(span.parent_id.notnull()).group_by(["trace_id", "parent_id"]).agg(made=ibis._.count())
    calls = span.select("trace_id", "service", "method", parent_id=span.span_id)
    each = calls.left_join(made, ["trace_id", "parent_id"])
    means = each.group_by(["service", "method"]).agg(mean=each.made.fill_null(0).mean())
    with study.store.at_rest():
        rows = study.engine.arrow(means).to_pylist()
    return {_name(row): float(row["mean"]) for row in rows}


def _by_time(study: Study) -> list[dict[str, Any]]:
    calls = timed(study.span)
    time = (calls.total_ns.cast("float64") * weight(calls)).sum()
    by = ["method_id", "service", "method"]
    sums = study.engine.arrow(calls.group_by(by).agg(samples=calls.count(), time=time)).to_pylist()
    return sorted(sums, key=lambda row: (-row["time"], row["method_id"]))


def _is_enough(row: dict[str, Any]) -> bool:
    return bool(row["samples"] >= schema.SAMPLES_MIN)


def _name(row: dict[str, Any]) -> Name:
    return row["service"], row["method"]


def _read(study: Study, waited: Any, method_id: int, one_in: int) -> pa.Table:
    """One call in so many, which then stands for as many more: by itself, since a trace may hold nearly all."""
    calls = timed(study.span)
    own = calls.filter(calls.method_id == method_id).select(*_COLUMNS)
    if one_in > 1:
        own = own.filter((own.trace_id.hash() ^ own.span_id.hash()) % one_in == 0)
        own = own.mutate(sample_weight=weight(own) * one_in)
    joined = own.left_join(waited, ["trace_id", (own.span_id == waited.parent_id)])
    chosen = joined.select(*_COLUMNS, "not_found_ns")
    beside = _since_others(study.span, method_id)
    chosen = chosen.left_join(beside, ["trace_id", "span_id"]).select(*_COLUMNS, "not_found_ns", SINCE_OTHERS)
    return study.engine.arrow(chosen.order_by(["start_ns", "trace_id", "span_id"]))


def _since_others(span: Any, method_id: int) -> Any:
    """Per call the time since its caller's calls of other methods were all over; negative while one goes on."""
    by = ["client_service", "caller"]
    known = span.filter(span.total_ns.notnull()).mutate(caller=span.client_machine.fill_null(""))
    callers = known.filter(known.method_id == method_id).select(*by).distinct()
    near = known.semi_join(callers, by)
    end_ns = ibis.ifelse(
        near.method_id != method_id, near.start_ns + near.total_ns.cast("int64"), ibis.null("int64")
    )
    before = ibis.cumulative_window(group_by=by, order_by=["start_ns", "span_id"])
    found = near.mutate(end_ns=end_ns.max().over(before)).filter(lambda each: each.method_id == method_id)
    return found.select("trace_id", "span_id", (found.start_ns - found.end_ns).name(SINCE_OTHERS))


def _not_found(span: Any) -> Any:
    """Per call how long it waited for calls that found nothing, beyond the first of its service and method."""
    failed = span.filter(span.status.isin(NOT_FOUND) & span.parent_id.notnull() & span.total_ns.notnull())
    order = ibis.window(group_by=["client_service", "method_id"], order_by=["start_ns", "span_id"])
    again = failed.mutate(nth=ibis.row_number().over(order))
    repeated = again.filter(again.nth > 0)
    return repeated.group_by(["trace_id", "parent_id"]).agg(not_found_ns=repeated.total_ns.sum())


def _groups(table: pa.Table) -> Integers:
    # Engines know bytes of any length only.
    ids = table["trace_id"].cast(pa.binary(16)).combine_chunks()
    return bootstrap.group_of(ids.chunk(0) if isinstance(ids, pa.ChunkedArray) else ids)
