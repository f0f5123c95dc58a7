"""How much there is: calls, time, bytes and cycles of each method, by how the calls ended (F8, F23, Table 1)."""

from __future__ import annotations

from typing import Any

import ibis
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.calls import weight
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study


@once
def volumes(study: Study) -> pa.Table:
    """One row per method_id, service, method, status and is_hedge (false where nothing is said).

    `samples` counts rows; all else is weighted (R7): calls, weight_squared, time_ns (totals known), staged (calls
    with a total and nine stages), located and local (both clusters known; the same), hedge_known, bytes of both
    directions and sized (calls whose both sizes are known), cycles, cycles_squared and costed (calls whose cycles
    are known).
    """
    span = study.span.mutate(
        is_hedge=study.span.is_hedge.fill_null(False), hedge_known=study.span.is_hedge.notnull()
    )
    by = ["method_id", "status", "is_hedge"]
    counted = span.group_by(by).agg(**_sums(span))
    named = counted.inner_join(study.engine.table("methods"), "method_id")
    return study.engine.arrow(named.order_by(by))


def _sums(span: Any) -> dict[str, Any]:
    each = weight(span)
    both = span.client_cluster.notnull() & span.server_cluster.notnull()
    sized = span.req_bytes.notnull() & span.resp_bytes.notnull()
    sizes = span.req_bytes.cast("float64") + span.resp_bytes.cast("float64")
    cycles = span.cpu_cycles.cast("float64") * each
    known = span.total_ns.notnull()
    for name in schema.STAGE_COLUMNS:
        known = known & span[name].notnull()
    sums = {
        "calls": each,
        "weight_squared": each * each,
        "time_ns": span.total_ns.cast("float64") * each,
        "staged": ibis.ifelse(known, each, 0.0),
        "located": ibis.ifelse(both, each, 0.0),
        "local": ibis.ifelse(both & (span.client_cluster == span.server_cluster), each, 0.0),
        "hedge_known": ibis.ifelse(span.hedge_known, each, 0.0),
        "bytes": sizes * each,
        "sized": ibis.ifelse(sized, each, 0.0),
        "cycles": cycles,
        "cycles_squared": cycles * cycles,
        "costed": ibis.ifelse(span.cpu_cycles.notnull(), each, 0.0),
    }
    return {"samples": span.count()} | {name: value.sum().fill_null(0.0) for name, value in sums.items()}


def total(table: pa.Table, column: str) -> float:
    """A column's sum; 0 of nothing."""
    return float(sum(table[column].to_pylist()))


def part(table: pa.Table, column: str, of: str = "calls") -> float:
    """Of the calls the share that a column counts."""
    whole = total(table, of)
    return total(table, column) / whole if whole else 0.0
