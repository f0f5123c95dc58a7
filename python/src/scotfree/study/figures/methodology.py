"""Section 2.1: what the study rests on."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.extent import Extent, extent
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import total, volumes
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import counted, percent

_DAY_NS: Final = 86_400 * 1_000_000_000
# By the name of the user's own number.
_PUBLISHED: Final = (
    ("methods", "methods", 10_000, "methods", ">="),
    ("spans_per_day", "calls sampled in a day", 722e9, "calls", "="),
    ("traces", "traces", 1e9, "traces", ">="),
    ("clusters", "clusters (published: hundreds)", 100, "clusters", ">="),
    ("metric_days", "days of metrics", 700, "days", "="),
)


def effective(calls: float, weight_squared: float) -> float:
    """The number of equally weighted calls that would tell as much (R7)."""
    return calls * calls / weight_squared if weight_squared > 0 else 0.0


def _numbers(study: Study, size: Extent) -> dict[str, float | None]:
    volume = volumes(study)
    calls = total(volume, "calls")
    per_method = volume.group_by("method_id").aggregate([("samples", "sum")])["samples_sum"].to_pylist()
    days = _days(size.first_ns, size.last_ns)
    return {
        "spans": size.spans,
        # A day's calls, of data of whichever length; data of less than a day are not made more.
        "spans_per_day": size.spans / max(days or 0.0, 1.0),
        "traces": size.traces,
        "methods": len(per_method),
        "methods_with_100_samples": sum(samples >= schema.SAMPLES_MIN for samples in per_method),
        "services": len(set(volume["service"].to_pylist())),
        "clusters": size.clusters,
        "machines": size.machines,
        "days": days,
        "metric_days": _days(size.metric_first_ns, size.metric_last_ns),
        # What the spans stand for, and how much they tell (R7).
        "calls": calls,
        "effective_spans": effective(calls, total(volume, "weight_squared")),
        "sampling_least": 1 / size.weight_greatest if size.weight_greatest else None,
        "sampling_greatest": 1 / size.weight_least if size.weight_least else None,
    }


def _days(first_ns: int | None, last_ns: int | None) -> float | None:
    return None if first_ns is None or last_ns is None else (last_ns - first_ns) / _DAY_NS


def compute(study: Study) -> Result:
    """T-meth: how many spans, methods, clusters, over which time, sampled how."""
    size = extent(study)
    if size.spans == 0:
        return absent(inputs.CALLS)
    found = _numbers(study, size)
    is_placed = size.clusters > 0
    return Result(
        Coverage.COMPLETE if is_placed else Coverage.PARTIAL,
        {"extent": pa.table({"what": list(found), "value": pa.array(found.values(), pa.float64())})},
        [] if is_placed else [inputs.CLUSTERS],
        [_finding(found)],
        [
            Comparison(what, published, found[name], unit, relation, Row(name))
            for name, what, published, unit, relation in _PUBLISHED
        ],
        [
            _pace(found),
            "Every call counts with its weight, the inverse of the probability with which it was kept; "
            "calls without "
            "one count once. Effective spans: (sum of weights)^2 / sum of squares.",
            "The paper's sampling leaves out some streaming calls; a retransmission of TCP is no error.",
        ],
    )


def _finding(found: dict[str, float | None]) -> str:
    spans, calls, telling = (found[name] or 0.0 for name in ("spans", "calls", "effective_spans"))
    sentence = f"{counted(round(spans), 'span')} of {counted(round(found['methods'] or 0), 'method')}"
    sentence += f" in {counted(round(found['traces'] or 0), 'trace')}"
    if calls != spans:
        sentence += f" stand for {calls:,.0f} calls and tell as much as {telling:,.0f} of equal weight"
        sentence += f" ({percent(telling / spans)})"
    return sentence + "."


def _pace(found: dict[str, float | None]) -> str:
    days = found["days"] or 0.0
    if days <= 1:
        return "The calls are of less than a day, from the first to the last: all count as one day's."
    return (
        f"Calls sampled in a day: {found['spans'] or 0:,.0f} spans over the {days:,.1f} days from the first call "
        "to the last. The paper's are of one day."
    )


FIGURES = (Figure("S2.1", "Extent of the data", "2.1", compute),)
