"""Times of all calls by method and by edge, from few calls up: what the first screen of a report speaks of.

An edge is who calls what: client service, server service, method. What a call waits outside the handler is its
total less the server's application, so it needs the records of both sides, and no agreement of their clocks.

`scotfree.study.edges` has edges once more, for what no table of quantiles can do: it compares calls one by one, so
it holds a bounded sample of each edge's calls, with what handlers waited for taken out, in one process. Here every
call counts, with its weight, on either engine, and nothing is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import histogram, order
from scotfree.study.analysis.calls import weight
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.quantiles import column, good
from scotfree.study.analysis.study import Study

# A method or an edge has a row from so many calls on.
CALLS_MIN: Final = 5
PS: Final = (0.50, 0.95, 0.99)
# An interval needs so many traces: how far fewer differ is chance.
TRACES_MIN: Final = 10
# The name of a client that no record says.
UNKNOWN: Final = ""
_EDGE: Final = ("client_service", "method_id")
_TIMED: Final = ("method_id", "is_client")


@dataclass(frozen=True)
class Interval:
    """A 95 % interval; None where too few traces tell."""

    traces: int
    low: float | None
    high: float | None


def _timed(study: Study) -> Any:
    """Successful calls; `total_ns` is as the client saw it, and where it has no record, as the server did."""
    calls = good(study.span)
    timed = calls.mutate(is_client=calls.total_ns.notnull(), total_ns=calls.total_ns.coalesce(calls.server_app_ns))
    return timed.filter(timed.total_ns.notnull())


def _outside(study: Study) -> Any:
    """Successful calls of which both sides are known; `total_ns` is what lies outside the handler."""
    calls = good(study.span)
    client = calls.client_service.fill_null(UNKNOWN)
    waits = calls.mutate(total_ns=calls.total_ns - calls.server_app_ns, client_service=client)
    return waits.filter(waits.total_ns.notnull())


def _grouped(study: Study, calls: Any, by: Sequence[str]) -> list[dict[str, Any]]:
    """Per group: samples, p50, p95, p99 and sum_ns (weighted, R7)."""
    sums = calls.group_by(list(by)).agg(sum_ns=(calls.total_ns.cast("float64") * weight(calls)).sum())
    found = histogram.quantiles(calls, by, PS).inner_join(sums, list(by))
    rows: list[dict[str, Any]] = study.engine.arrow(found.order_by(list(by))).to_pylist()
    return rows


@once
def all_time_ns(study: Study) -> float:
    """The time of all successful calls: what shares of time are of."""
    return float(sum(row["sum_ns"] for row in _times(study)))


@once
def _times(study: Study) -> list[dict[str, Any]]:
    return _grouped(study, _timed(study), _TIMED)


@once
def _waits(study: Study) -> list[dict[str, Any]]:
    return _grouped(study, _outside(study), _EDGE)


def edges_seen(study: Study) -> int:
    """How many edges have any call with both records."""
    return len(_waits(study))


_TIMES: Final = [pa.field("samples", pa.int64()), *(pa.field(f"{column(p)}_ns", pa.float64()) for p in PS)]
METHODS: Final = pa.schema(
    [
        pa.field("method_id", pa.int32()),
        pa.field("service", pa.string()),
        pa.field("method", pa.string()),
        # All that were recorded, and of these the ones that failed.
        pa.field("calls", pa.int64()),
        pa.field("errors", pa.int64()),
        # Of the calls that these weigh for (R7).
        pa.field("error_share", pa.float64()),
        # Those that succeeded and say how long they took; whether as their client saw it, or as the server did.
        *_TIMES,
        pa.field("is_client", pa.bool_()),
        # Of the time of all calls.
        pa.field("share", pa.float64()),
        # Of the time of its calls with both records, and how many these are.
        pa.field("tax", pa.float64()),
        pa.field("pairs", pa.int64()),
    ]
)
EDGES: Final = pa.schema(
    [
        pa.field("client_service", pa.string()),
        pa.field("method_id", pa.int32()),
        pa.field("service", pa.string()),
        pa.field("method", pa.string()),
        *_TIMES,
        # Of the time of all calls.
        pa.field("share", pa.float64()),
    ]
)


@once
def methods(study: Study) -> pa.Table:
    """A row of `METHODS` for each with calls enough, those that most time goes into first."""
    whole = all_time_ns(study)
    times: dict[int, list[dict[str, Any]]] = {}
    for row in _times(study):
        times.setdefault(row["method_id"], []).append(row)
    rows = [
        _method(row, times.get(row["method_id"], []), whole)
        for row in study.counts().to_pylist()
        if row["calls"] >= CALLS_MIN
    ]
    ordered = sorted(rows, key=lambda row: (-row["share"], -row["calls"], row["method_id"]))
    return pa.Table.from_pylist(ordered, schema=METHODS)


def _method(counted: dict[str, Any], times: list[dict[str, Any]], whole: float) -> dict[str, Any]:
    # Clients' times and servers' are not mixed: the side that more calls are known of speaks.
    most = max(times, key=lambda row: (row["samples"], row["is_client"]), default=None)
    return {
        **{name: counted[name] for name in ("method_id", "service", "method", "calls", "errors", "pairs")},
        "error_share": counted["error_weight"] / counted["weight"],
        **_quantiles(most),
        "is_client": most["is_client"] if most else None,
        "share": _share(sum(row["sum_ns"] for row in times), whole),
        "tax": 1 - counted["pair_app_ns"] / counted["pair_total_ns"] if counted["pair_total_ns"] else None,
    }


@once
def edges(study: Study) -> pa.Table:
    """A row of `EDGES` for each with calls enough, those that wait longest in all first."""
    named = {row["method_id"]: row for row in study.store.read("methods").to_pylist()}
    whole = all_time_ns(study)
    rows = [
        {
            **{name: row[name] for name in _EDGE},
            **{name: named[row["method_id"]][name] for name in ("service", "method")},
            **_quantiles(row),
            "share": _share(row["sum_ns"], whole),
        }
        for row in _waits(study)
        if row["samples"] >= CALLS_MIN
    ]
    ordered = sorted(rows, key=lambda row: (-row["share"], row["client_service"], row["method_id"]))
    return pa.Table.from_pylist(ordered, schema=EDGES)


def _quantiles(row: dict[str, Any] | None) -> dict[str, Any]:
    if row is None:
        return {"samples": 0} | {f"{column(p)}_ns": None for p in PS}
    return {"samples": row["samples"]} | {f"{column(p)}_ns": float(row[column(p)]) for p in PS}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def edge_intervals(study: Study, rows: Sequence[dict[str, Any]], p: float) -> list[Interval]:
    """Of a quantile of what lies outside the handler of each edge's calls."""
    return _intervals(study, _outside(study), _EDGE, rows, p)


def method_intervals(study: Study, rows: Sequence[dict[str, Any]], p: float) -> list[Interval]:
    """Of a quantile of the time of each method's calls."""
    return _intervals(study, _timed(study), _TIMED, rows, p)


def error_intervals(study: Study, rows: Sequence[dict[str, Any]]) -> list[Interval]:
    """Of the share of each method's calls that fail."""
    if not rows:
        return []
    calls = _numbered(study.span, ("method_id",), rows)
    found = _independent(study, calls, calls.status != schema.STATUS_OK, len(rows))
    return [
        Interval(traces, *order.share_interval(row["error_share"], samples))
        if traces >= TRACES_MIN
        else Interval(traces, None, None)
        for row, (traces, samples) in zip(rows, found, strict=True)
    ]


def _intervals(
    study: Study, calls: Any, by: Sequence[str], rows: Sequence[dict[str, Any]], p: float
) -> list[Interval]:
    """By ranks: the values at the shares between which the quantile lies, whatever the distribution is."""
    if not rows:
        return []
    numbered = _numbered(calls, by, rows)
    is_below = numbered.total_ns <= _of_each(numbered.number, [row[f"{column(p)}_ns"] for row in rows])
    found = _independent(study, numbered, is_below, len(rows))
    shares = [order.shares(p, int(samples)) if traces >= TRACES_MIN else None for traces, samples in found]
    bins = _bins(study, numbered, len(rows)) if any(shares) else []
    return [
        Interval(traces, *(_reached(bins[number], share) for share in between))
        if (between := shares[number])
        else Interval(traces, None, None)
        for number, (traces, _) in enumerate(found)
    ]


def _numbered(calls: Any, by: Sequence[str], rows: Sequence[dict[str, Any]]) -> Any:
    """The calls of some groups, with the `number` of the row that each belongs to: all are asked at once."""
    which = [ibis.and_(*(calls[name] == row[name] for name in by)) for row in rows]
    numbered = calls.mutate(number=ibis.cases(*((is_one, number) for number, is_one in enumerate(which))))
    return numbered.filter(numbered.number.notnull())


def _of_each(number: Any, values: Sequence[float]) -> Any:
    return ibis.cases(*((number == index, value) for index, value in enumerate(values)))


def _bins(study: Study, numbered: Any, count: int) -> list[pa.Table]:
    """Of each group, in the order of values."""
    bins = study.engine.arrow(histogram.binned(numbered, ["number"]).order_by("number", "value"))
    return [bins.filter(pc.equal(bins["number"], number)) for number in range(count)]


def _reached(bins: pa.Table, share: float) -> float:
    """The value below which such a share lies."""
    weights = np.cumsum(bins["weight"].to_numpy())
    return float(bins["value"][int(np.searchsorted(weights, share * weights[-1] * (1 - schema.ROUNDING)))].as_py())


def _independent(study: Study, numbered: Any, is_part: Any, count: int) -> list[tuple[int, float]]:
    """Of each group: how many traces there are, and how many independent calls would tell a part's share as well.

    By how much the share differs from trace to trace: calls of one trace are not independent.
    """
    each = ibis.ifelse(is_part, weight(numbered), 0.0)
    marked = numbered.select("number", "trace_id", whole=weight(numbered), part=each)
    of_trace = marked.group_by("number", "trace_id").agg(whole=marked.whole.sum(), part=marked.part.sum())
    sums = of_trace.group_by("number").agg(
        traces=of_trace.count(),
        whole=of_trace.whole.sum(),
        part=of_trace.part.sum(),
        whole_2=(of_trace.whole * of_trace.whole).sum(),
        both=(of_trace.whole * of_trace.part).sum(),
        part_2=(of_trace.part * of_trace.part).sum(),
    )
    found = {row["number"]: row for row in study.engine.arrow(sums).to_pylist()}
    return [_as_independent(found[number]) if number in found else (0, 0.0) for number in range(count)]


def _as_independent(found: dict[str, Any]) -> tuple[int, float]:
    traces, share = int(found["traces"]), found["part"] / found["whole"]
    spread = found["part_2"] - 2 * share * found["both"] + share * share * found["whole_2"] if traces > 1 else 0.0
    if spread <= 0:
        # All traces are alike: each is one more that says the same.
        return traces, float(traces)
    variance = spread / found["whole"] ** 2 * traces / (traces - 1)
    return traces, share * (1 - share) / variance
