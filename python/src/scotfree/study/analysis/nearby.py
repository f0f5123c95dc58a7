"""The calls whose total lies around a quantile of their group, and what their time consists of (F16, F17, F19)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import ibis
import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.calls import weight
from scotfree.study.analysis.histogram import nearest_rank
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study

# Around means within 1 % of the quantile; where that are fewer calls than CALLS_MIN, the next width.
WIDTHS: Final = (0.01, 0.02, 0.05, 0.10, 0.20)
CALLS_MIN: Final = 10
MEDIAN, TAIL = 0.5, 0.95
_TIMES = ("total_ns", *schema.STAGE_COLUMNS)
_names = count()


def around(
    study: Study, calls: Any, by: Sequence[str], p: float, *, samples_min: int = schema.SAMPLES_MIN
) -> pa.Table:
    """Per group with samples enough (R3) the weighted mean of each component of the calls around its p-quantile.

    Columns: the group's, samples (of the group), p50 and p95, calls (samples around), width (relative, one of
    WIDTHS), total_ns and each stage. `calls` have all nine stages.
    """
    found = nearest_rank(calls, study.engine, by, [MEDIAN, TAIL])
    found = found.filter(pa.array(np.array(found["samples"]) >= samples_min, pa.bool_()))
    centres = found.append_column("centre_ns", found[column(p)].cast(pa.float64()))
    rings = study.engine.arrow(_rings(study, calls, by, centres.select([*by, "centre_ns"])))
    return _widened(found, rings, by)


def _rings(study: Study, calls: Any, by: Sequence[str], centres: pa.Table) -> Any:
    """Sums per group and ring: ring i holds what WIDTHS[i] includes and the width before does not."""
    joined = calls.inner_join(study.engine.register(f"around_{next(_names)}", centres), list(by))
    distance = (joined.total_ns.cast("float64") - joined.centre_ns).abs()
    ring = sum(((distance > joined.centre_ns * width).cast("int64") for width in WIDTHS), ibis.literal(0))
    near = joined.mutate(ring=ring, each=weight(joined))
    near = near.filter(near.ring < len(WIDTHS))
    sums = {name: (near[name].cast("float64") * near.each).sum() for name in _TIMES}
    return near.group_by([*by, "ring"]).agg(calls=near.count(), weight=near.each.sum(), **sums)


def _widened(groups: pa.Table, rings: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rings of each group from the inmost out, until there are calls enough."""
    parts: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rings.to_pylist():
        parts.setdefault(tuple(row[name] for name in by), []).append(row)
    rows = [
        row | _means(parts[tuple(row[name] for name in by)]) for row in groups.drop_columns("weight").to_pylist()
    ]
    kinds = [groups.schema.field(name) for name in groups.column_names if name != "weight"]
    kinds += [pa.field("calls", pa.int64()), pa.field("width", pa.float64())]
    return pa.Table.from_pylist(
        rows, schema=pa.schema([*kinds, *(pa.field(name, pa.float64()) for name in _TIMES)])
    )


def _means(rings: list[dict[str, Any]]) -> dict[str, Any]:
    taken: list[dict[str, Any]] = []
    for ring in sorted(rings, key=lambda row: row["ring"]):
        taken.append(ring)
        if sum(row["calls"] for row in taken) >= CALLS_MIN:
            break
    weights = sum(row["weight"] for row in taken)
    return {
        "calls": sum(row["calls"] for row in taken),
        "width": WIDTHS[taken[-1]["ring"]],
        **{name: sum(row[name] for row in taken) / weights for name in _TIMES},
    }
