"""F15: who would leave the P95 tail if one stage took what it takes in the median."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import shares
from scotfree.study.analysis.selection import TABLE_1, Selected, selected
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent
from scotfree.study.figures.words import called, counted, percent, span, spoken

# Figure 15, in percent. Its columns in its order: the fourth, printed as a second "Server Send Queue", is the
# server's receive queue. The row that it calls BigQuery is that of Bigtable in Table 1.
PUBLISHED_STAGES: Final = (
    "client_send_queue",
    "request_wire",
    "request_stack",
    "server_recv_queue",
    "server_app",
    "server_send_queue",
    "response_stack",
    "response_wire",
    "client_recv_queue",
)
PUBLISHED_PERCENT: Final = {
    "Network Disk": (0.65, 0.35, 1.90, 4.13, 22.43, 0.11, 0.89, 0.57, 5.02),
    "SSD cache": (0.78, 0.18, 11.30, 33.58, 1.64, 1.98, 4.13, 0.00, 1.59),
    "F1": (0.01, 0.00, 1.18, 13.98, 21.33, 0.01, 1.81, 0.29, 28.56),
    "Bigtable": (0.13, 0.48, 0.02, 3.34, 36.34, 0.13, 2.87, 0.48, 0.17),
    "KV-Store": (1.06, 1.67, 0.04, 2.18, 4.55, 0.11, 15.47, 0.95, 2.96),
    "ML Inference": (0.09, 0.02, 0.25, 0.43, 67.97, 1.08, 0.46, 0.00, 0.33),
    "Spanner": (0.03, 0.63, 1.61, 2.95, 26.56, 0.41, 3.51, 0.35, 0.84),
    "Video Metadata": (0.86, 2.23, 0.97, 17.35, 2.73, 0.22, 5.56, 2.63, 18.01),
}
FLEET: Final = "all methods"

# Methods beside the selected ones, so that they do not crowd those out.
_TAILS_MOST: Final = 4

Cells = dict[tuple[int | None, str], dict[str, Any]]
# A method_id (None: all methods together), its service, its name.
Row = tuple[int | None, str, str]


def cells(study: Study) -> Cells:
    """What `Study.what_if` found, by method_id (None: all methods together) and stage."""
    rows = study.what_if().to_pylist()
    return {(row["method_id"], row["removed"]): row for row in rows if row["leaves"] is not None}


class Tail(NamedTuple):
    """A method's P95 tail: the stage without which most of it leaves, and that part of the time of all calls."""

    method_id: int
    service: str
    method: str
    stage: str
    leaves: float
    share: float


def weightiest(study: Study, found: Cells) -> list[Tail]:
    """The tails that most time goes into for one stage's sake: the tail's time x the share of it that leaves."""
    tails = []
    for method, time in tail_time(study).items():
        most = dominant(found, method)
        if most and most[1] > 0:
            row = found[method, most[0]]
            tails.append(Tail(method, row["service"], row["method"], *most, time * most[1]))
    return sorted(tails, key=lambda one: (-one.share, one.method_id))[:_TAILS_MOST]


def tail_time(study: Study) -> dict[int, float]:
    """Per method the share of the time of all calls that its P95 tail takes."""
    table = shares.sums(study)
    whole = shares.summed(table, "total_ns")
    tail = table.filter(table["in_tail"]).group_by("method_id").aggregate([("total_ns", "sum")])
    times = zip(tail["method_id"].to_pylist(), tail["total_ns_sum"].to_pylist(), strict=True)
    return {method: time / whole for method, time in times} if whole else {}


def _shown(methods: tuple[Selected, ...], tails: list[Tail]) -> list[Row]:
    """The selected methods, then those of the weightiest tails, then all together."""
    named: list[Row] = [(one.method_id, one.service, one.method) for one in methods]
    named += [(one.method_id, one.service, one.method) for one in tails]
    return [*dict.fromkeys(named), (None, FLEET, FLEET)]


def _matrix(methods: list[Row], found: Cells) -> pa.Table:
    """One row per method and stage."""
    rows = [
        {"service": service, "method": method, "stage": stage}
        | {name: found[id_, stage][name] for name in ("samples", "tail", "leaves", "leaves_low", "leaves_high")}
        for id_, service, method in methods
        for stage in PUBLISHED_STAGES
        if (id_, stage) in found
    ]
    return pa.Table.from_pylist(rows, schema=_MATRIX)


_MATRIX: Final = pa.schema(
    [
        ("service", pa.string()),
        ("method", pa.string()),
        ("stage", pa.string()),
        # Calls above T whose stage is known, and their weight.
        ("samples", pa.int64()),
        ("tail", pa.float64()),
        # Share of them that leaves, with its 95 % interval.
        ("leaves", pa.float64()),
        ("leaves_low", pa.float64()),
        ("leaves_high", pa.float64()),
    ]
)


def published_matrix() -> pa.Table:
    """The paper's eight rows, as shares."""
    rows = [
        {"service": service, "stage": stage, "leaves": value / 100}
        for service, values in PUBLISHED_PERCENT.items()
        for stage, value in zip(PUBLISHED_STAGES, values, strict=True)
    ]
    return pa.Table.from_pylist(rows)


def _comparisons(methods: tuple[Selected, ...], found: Cells) -> list[Comparison]:
    """The published cells of those services of Table 1 that the user has, beside his.

    The published matrix is drawn in either case.
    """
    ids = {one.published.service: one.method_id for one in methods if one.published}
    return [
        Comparison(
            f"{service}: no longer among the slowest 5 % if {spoken(stage)} took its median",
            value / 100,
            _leaves(found, ids[service], stage),
            "share",
        )
        for service in (row.service for row in TABLE_1 if row.service in ids)
        for stage, value in zip(PUBLISHED_STAGES, PUBLISHED_PERCENT[service], strict=True)
    ]


def _leaves(found: Cells, method_id: int | None, stage: str) -> float | None:
    row = found.get((method_id, stage))
    return float(row["leaves"]) if row else None


def dominant(found: Cells, method_id: int | None) -> tuple[str, float] | None:
    """The stage without which most of a method's tail leaves, and how much; None if nothing is known."""
    known = [(value, stage) for stage in schema.STAGES if (value := _leaves(found, method_id, stage)) is not None]
    if not known:
        return None
    value, stage = max(known, key=lambda one: one[0])
    return stage, value


def sentence(name: str, stage: str, cell: dict[str, Any]) -> str:
    """What the dominant stage means, with the interval and the slow calls that it rests on."""
    if cell["leaves"] <= 0:
        return f"No stage by itself makes the slowest 5 % of {name}: at its median none takes a call out of them."
    taken = "handler" if stage == schema.STAGES[schema.APP] else spoken(stage)
    rests = counted(cell["samples"], "slow call")
    low, high = cell["leaves_low"], cell["leaves_high"]
    if low is not None and low != high:
        rests = f"{span(percent(low), percent(high))}, {rests}"
    part = f"{_part(cell['leaves'])} of its slowest 5 % of calls"
    return f"If {name}'s {taken} took its median, {part} would no longer be slow ({rests})."


def _part(share: float) -> str:
    """All, half, 62 %."""
    return {100: "all", 50: "half"}.get(round(share * 100), percent(share))


def _findings(methods: list[Row], found: Cells) -> list[str]:
    tops = [
        (called(service, method) if id_ is not None else "each method", id_, dominant(found, id_))
        for id_, service, method in methods
    ]
    return [sentence(name, top[0], found[id_, top[0]]) for name, id_, top in tops if top]


def compute(study: Study) -> Result:
    """F15: per method shown and of all, the share of the tail that leaves it, for each of the nine stages."""
    methods, found = selected(study), cells(study)
    if not methods:
        return absent(inputs.SAMPLES)
    shown = _shown(methods, weightiest(study, found))
    matrix = _matrix(shown, found)
    if matrix.num_rows == 0:
        return absent(inputs.STAGES)
    is_whole = matrix.num_rows == len(shown) * len(schema.STAGES)
    return Result(
        Coverage.COMPLETE if is_whole else Coverage.PARTIAL,
        {"what_if": matrix, "published": published_matrix()},
        [] if is_whole else [inputs.STAGES],
        _findings(shown, found),
        _comparisons(methods, found),
        _NOTES,
    )


_NOTES = [
    "T is the P95 of the method's total, m the stage's median, over all its successful calls; the tail is "
    "total > T; a call leaves it if total - stage + m < T. T is exact; of a method with more than 10,000 "
    "calls m is "
    "within 1 %.",
    "The paper prints its fourth column as a second Server Send Queue; it is read as the server's receive queue. "
    "Its row BigQuery is read as Bigtable, the service of Table 1.",
    "Shown: the methods of T1, and those whose tails most of all calls' time goes into for one stage's sake.",
    "The row of all methods adds up their tails: each call is measured by the T and m of its own method.",
    "Intervals: 95 %, by resampling whole traces; T and m are not drawn anew.",
]

FIGURES = (Figure("F15", "Slow calls without one stage", "3.3.2", compute),)
