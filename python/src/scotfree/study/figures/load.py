"""F22: how evenly load is spread over clusters, and over the machines of one."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from scotfree.study.analysis import load
from scotfree.study.analysis.selection import plain_name
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent
from scotfree.study.figures.words import listed, percent

MACHINES: Final = "the metrics cpu_used and cpu_limit with the label machine, of two machines of a cluster or more"
# Section 4.3: these have machines that are nearly fully used.
_PUBLISHED_SATURATED: Final = ("Spanner", "F1", "ML Inference")
_SATURATED: Final = 0.95

Rows = list[dict[str, Any]]


def imbalance(loads: list[float]) -> float | None:
    """The greatest over the mean: 1 is balance. None of nothing or of no load."""
    return max(loads) / float(np.mean(loads)) if loads and max(loads) > 0 else None


def _curve(service: str, over: str, of: list[tuple[str, float]]) -> Rows:
    """One service's distribution: its clusters or machines in the order of their load."""
    ordered = sorted(of, key=lambda one: (one[1], one[0]))
    return [
        {"service": service, "over": over, "name": name, "load": value, "cdf": (place + 1) / len(ordered)}
        for place, (name, value) in enumerate(ordered)
    ]


def _watched(rows: Rows) -> str:
    """The cluster whose machines are looked at: the one that has most of them."""
    return str(max(rows, key=lambda row: (row["machines"], row["load"], row["cluster"]))["cluster"])


def _of_service(service: str, rows: Rows, machines: Rows) -> tuple[Rows, dict[str, Any]]:
    """The curves of a service, and its imbalance."""
    cluster = _watched(rows)
    inside = [(row["machine"], row["load"]) for row in machines if row["cluster"] == cluster and row["machine"]]
    across = [(row["cluster"], row["load"]) for row in rows]
    summary = {
        "service": service,
        "clusters": len(rows),
        "imbalance_clusters": imbalance([value for _, value in across]),
        "cluster": cluster,
        "machines": len(inside),
        "imbalance_machines": imbalance([value for _, value in inside]),
        "load_max": max(value for _, value in across + inside),
    }
    return _curve(service, "clusters", across) + _curve(service, f"machines of {cluster}", inside), summary


def compute(study: Study) -> Result:
    """F22: per service the distribution of used over allowed processors over clusters and over machines."""
    machines = load.machines(study)
    rows = load.clusters(machines)
    if not rows:
        return absent(inputs.LOAD)
    curves, summaries = [], []
    for service in sorted({row["service"] for row in rows}):
        own = [row for row in machines.to_pylist() if row["service"] == service]
        curve, summary = _of_service(service, [row for row in rows if row["service"] == service], own)
        curves += curve
        summaries.append(summary)
    missing = [] if any(row["machines"] > 1 for row in summaries) else [MACHINES]
    if not any(row["clusters"] > 1 for row in summaries):
        missing.append("the metrics cpu_used and cpu_limit of two clusters or more")
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"load": pa.Table.from_pylist(curves), "summary": pa.Table.from_pylist(summaries)},
        missing,
        _findings(summaries),
        _comparisons(summaries),
        [
            "Load: mean over time of processors used, over that of the limit. Of a cluster: sums over "
            "its machines. "
            "The machines are those of the cluster that has most.",
            f"Imbalance: the greatest load over the mean load. Saturated: a load of {percent(_SATURATED)} "
            "or more; "
            "the paper says nearly fully utilized and gives no number: about 100 % is read off its Figure 22.",
        ],
    )


def _findings(summaries: Rows) -> list[str]:
    found = []
    for over, key in (("clusters", "imbalance_clusters"), ("machines of one cluster", "imbalance_machines")):
        known = [row for row in summaries if row[key] is not None]
        if known:
            worst = max(known, key=lambda row: float(row[key]))
            found.append(
                f"Load differs most between {over} at {worst['service']}: the greatest is "
                f"{worst[key]:.3g} times the mean."
            )
    full = [row["service"] for row in summaries if row["load_max"] >= _SATURATED]
    return found + ([f"Saturated: {listed(full)}."] if full else [])


def _comparisons(summaries: Rows) -> list[Comparison]:
    """The paper names who is saturated, and shows by how much in a picture; the user's greatest load is beside."""
    named = {plain_name(row["service"]): row["load_max"] for row in summaries}
    return [
        Comparison(
            f"{service}: greatest load", 1.0, named.get(plain_name(service)), "share", "about", is_read_off=True
        )
        for service in _PUBLISHED_SATURATED
    ]


FIGURES = (Figure("F22", "Load across clusters and machines", "4.3", compute),)
