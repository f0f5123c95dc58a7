"""Requests per cycle, day by day (F1)."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from scotfree.study.analysis.calls import HALF_HOUR_NS, window
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study

_DAY_WINDOWS: Final = 86_400 * 1_000_000_000 // HALF_HOUR_NS


@once
def daily(study: Study) -> pa.Table:
    """day (since 1970, UTC), rps, cycles (sums over the day's half hours), and windows (half hours with both).

    A series' half hour is the mean of its samples, whatever their rate. Only half hours with both kinds count, so
    that a gap in one of them does not look like a change.
    """
    metric = study.metric
    rows = metric.filter(metric.series.isin(["rps", "cpu_cycles"]))
    rows = rows.mutate(window=window(rows.ts_ns))
    labels = ["series", "service", "method", "cluster", "machine"]
    means = rows.group_by([*labels, "window"]).agg(value=rows.value.mean())
    windows = means.group_by("window").agg(
        rps=means.value.sum(where=means.series == "rps"),
        cycles=means.value.sum(where=means.series == "cpu_cycles"),
    )
    both = windows.filter(windows.rps.notnull() & (windows.cycles > 0))
    both = both.mutate(day=(both.window // _DAY_WINDOWS).cast("int64"))
    days = both.group_by("day").agg(rps=both.rps.sum(), cycles=both.cycles.sum(), windows=both.count())
    return study.engine.arrow(days.order_by("day"))
