"""F14: the distribution of a method's completion time, and what it consists of at each quantile."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import histogram
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.place import Placed, local_calls
from scotfree.study.analysis.selection import Selected, selected
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import total, volumes
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent
from scotfree.study.figures.words import called, percent, spoken

BINS: Final = 100
_MEDIAN, _TAIL = 49, 94
# Section 3.3.1: share of the dominant component, and P95 over median; least and greatest of the eight services.
_PUBLISHED: Final = {"median_share": (0.25, 0.66), "tail_share": (0.30, 0.83), "tail_ratio": (1.86, 10.6)}
_WORDS: Final = {
    "median_share": ("dominant component of the median call", "share"),
    "tail_share": ("dominant component of the P95 call", "share"),
    "tail_ratio": ("P95 over median", "ratio"),
}

Array = np.ndarray[Any, Any]


@once
def local_bins(study: Study) -> pa.Table:
    """The selected methods' calls within a cluster by their total; see `histogram.binned`."""
    bins = histogram.binned(local_calls(study).calls, ["method_id"], schema.STAGE_COLUMNS)
    return study.engine.arrow(bins.order_by(["method_id", "value"]))


def quantile_bins(rows: pa.Table, bins: int = BINS) -> pa.Table:
    """Totals in order -> `bins` parts of equal weight: cdf (upper end), calls, total_ns and stages (means).

    Calls with one total stay together, in the part that their last one reaches; a part may be left without any.
    """
    weight = _floats(rows, "weight")
    reached = np.cumsum(weight)
    # A little less, since a share of one part in a hundred may come out above it by a rounding.
    index = np.clip(np.ceil(reached / reached[-1] * bins - 1e-9).astype(int) - 1, 0, bins - 1)
    size = np.bincount(index, weight, bins)
    is_there = size > 0
    columns: dict[str, Array] = {"cdf": (np.arange(bins) + 1)[is_there] / bins}
    columns["calls"] = np.bincount(index, _floats(rows, "samples"), bins)[is_there]
    stages = {name: np.bincount(index, _floats(rows, name), bins)[is_there] / size[is_there] for name in _STAGES}
    return pa.table({**columns, "total_ns": sum(stages.values()), **stages})


_STAGES: Final = schema.STAGE_COLUMNS


def _floats(rows: pa.Table, name: str) -> Array:
    values: Array = rows[name].to_numpy(zero_copy_only=False).astype(float)
    return values


def _dominant(row: dict[str, Any]) -> tuple[str, float]:
    """The stage with most of the time of a part, and its share."""
    stage = max(schema.STAGES, key=lambda name: float(row[f"{name}_ns"]))
    return stage, row[f"{stage}_ns"] / row["total_ns"] if row["total_ns"] else 0.0


def _summary(one: Selected, rows: pa.Table, parts: pa.Table) -> dict[str, Any]:
    weight, value = np.cumsum(_floats(rows, "weight")), _floats(rows, "value")
    p50, p95 = (float(value[np.argmax(weight >= p * weight[-1] * (1 - schema.ROUNDING))]) for p in (0.5, 0.95))
    listed = parts.to_pylist()
    median, tail = (next(row for row in listed if row["cdf"] * BINS > place + 0.5) for place in (_MEDIAN, _TAIL))
    (median_stage, median_share), (tail_stage, tail_share) = _dominant(median), _dominant(tail)
    return {
        "service": one.service,
        "method": one.method,
        "samples": int(_floats(rows, "samples").sum()),
        "p50_ns": p50,
        "p95_ns": p95,
        "tail_ratio": p95 / p50 if p50 else None,
        "median_stage": median_stage,
        "median_share": median_share,
        "tail_stage": tail_stage,
        "tail_share": tail_share,
    }


def _tables(study: Study) -> tuple[list[pa.Table], list[dict[str, Any]]]:
    """The parts and the summary of each selected method with enough samples (R3)."""
    found, parts, summaries = local_bins(study), [], []
    for one in selected(study):
        rows = found.filter(pc.equal(found["method_id"], one.method_id))
        if _floats(rows, "samples").sum() < schema.SAMPLES_MIN:
            continue
        binned = quantile_bins(rows)
        names = {"service": [one.service] * binned.num_rows, "method": [one.method] * binned.num_rows}
        parts.append(pa.table({**names, **{name: binned[name] for name in binned.column_names}}))
        summaries.append(_summary(one, rows, binned))
    return parts, summaries


def _comparisons(summaries: list[dict[str, Any]]) -> list[Comparison]:
    found = []
    for key, published in _PUBLISHED.items():
        values = [row[key] for row in summaries if row[key] is not None]
        words, unit = _WORDS[key]
        for which, of, value in zip(("least", "greatest"), (min, max), published, strict=True):
            found.append(
                Comparison(f"{words}, {which} of the services", value, of(values) if values else None, unit)
            )
    return found


def _finding(row: dict[str, Any]) -> str:
    return (
        f"{called(row['service'], row['method'])}: {spoken(row['median_stage'])} is "
        f"{percent(row['median_share'])} of the median call, "
        f"{spoken(row['tail_stage'])} {percent(row['tail_share'])} of the P95 call"
        + (f", which takes {row['tail_ratio']:.3g} times as long." if row["tail_ratio"] else ".")
    )


def compute(study: Study) -> Result:
    """F14: per selected method 100 parts of equal weight by total, with the means of the nine components."""
    placed, (parts, summaries) = local_calls(study), _tables(study)
    if not parts:
        return absent(*(missing_calls(study)[:1] or [inputs.SAMPLES]))
    missing = missing_places(placed)
    is_whole = not missing and len(parts) == len(selected(study))
    if not is_whole and not missing:
        missing = [inputs.STAGES]
    return Result(
        Coverage.COMPLETE if is_whole else Coverage.PARTIAL,
        {"cdf": pa.concat_tables(parts), "summary": pa.Table.from_pylist(summaries)},
        missing,
        [_finding(row) for row in summaries],
        _comparisons(summaries),
        [
            *place_notes(placed),
            f"{BINS} parts of equal weight; the median call is the part that ends at P50, the P95 call "
            "the one that "
            "ends at P95.",
        ],
    )


def missing_calls(study: Study) -> list[str]:
    """What calls lack altogether of what figures of stages within a cluster need."""
    volume = volumes(study)
    lacking = {inputs.STAGES: total(volume, "staged") <= 0, inputs.CLUSTERS: total(volume, "located") <= 0}
    return [name for name, is_lacking in lacking.items() if is_lacking]


def missing_places(placed: Placed) -> list[str]:
    """What figures within a cluster lack."""
    return [] if placed.located >= inputs.COMPLETE_MIN else [inputs.CLUSTERS]


def place_notes(placed: Placed) -> list[str]:
    """Which calls figures within a cluster take."""
    if not placed.is_local:
        return ["No call says both clusters, so calls between clusters could not be left out (R4)."]
    return [
        f"Only calls within one cluster (R4): {percent(placed.local)} of those whose clusters are known, "
        "which are "
        f"{percent(placed.located)} of all."
    ]


FIGURES = (Figure("F14", "Completion time by component", "3.3.1", compute),)
