"""Who answered the calls of each method: its service, a device on the path, or a function of one."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pyarrow as pa

from scotfree.study.analysis.calls import timed, weight
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study

# What `rpc.stage.answered_by` says where no device answered.
SERVER: Final = "server"


@once
def answered(study: Study) -> pa.Table:
    """A row for each method, of which a device answered calls, and each that answered some.

    Columns: method_id, service, method, answered_by, samples, calls (weighted, R7), time_ns (of them, weighted),
    mean_ns; the method of most calls first, then who answered most of its calls. Of calls that succeeded (R1).
    """
    known = timed(study.span).filter(lambda call: call.answered_by.notnull())
    known = known.mutate(each=weight(known), time=known.total_ns.cast("float64"))
    sums = known.group_by(["method_id", "service", "method", "answered_by"])
    rows = sums.agg(samples=known.count(), calls=known.each.sum(), time_ns=(known.time * known.each).sum())
    table = study.engine.arrow(rows.mutate(mean_ns=rows.time_ns / rows.calls))
    found = table.to_pylist()
    away = {row["method_id"] for row in found if row["answered_by"] != SERVER}
    whole: Counter[int] = Counter()
    for row in found:
        whole[row["method_id"]] += row["calls"]
    order = sorted(
        (place for place, row in enumerate(found) if row["method_id"] in away),
        key=lambda place: (-whole[found[place]["method_id"]], *_within(found[place])),
    )
    return table.take(pa.array(order, pa.int64()))


def _within(row: dict[str, Any]) -> tuple[int, float, str]:
    return row["method_id"], -row["calls"], row["answered_by"]
