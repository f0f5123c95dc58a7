"""F16 and F19: the same method in different clusters, and from one cluster to another."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import clustering, nearby
from scotfree.study.analysis.calls import staged, weight
from scotfree.study.analysis.place import local_calls
from scotfree.study.analysis.selection import Selected, of_selected, selected
from scotfree.study.analysis.study import Study
from scotfree.study.figures.completion import missing_calls, missing_places, place_notes
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent
from scotfree.study.figures.words import called, counted, duration, percent, spoken

# Section 3.3.3: clusters of a service, and its slowest over its fastest P95; least and greatest of the services.
_PUBLISHED_CLUSTERS: Final = (5, 44)
_PUBLISHED_SPREAD: Final = (1.24, 10.0)
# Section 3.3.5.
_PUBLISHED_REMOTE: Final = 21
_REMOTE_SERVICE: Final = "Spanner"
TWO_CLUSTERS: Final = "calls of one method in at least two clusters, 100 in each"

Rows = list[dict[str, Any]]


def _named(one: Selected, rows: Rows) -> Rows:
    return [{"service": one.service, "method": one.method, **row} for row in rows]


def _spread(rows: Rows) -> float | None:
    """The slowest cluster's P95 over the fastest's."""
    tails_ns = [row["p95"] for row in rows]
    return max(tails_ns) / min(tails_ns) if len(rows) > 1 and min(tails_ns) > 0 else None


def _finding(one: Selected, rows: Rows) -> str:
    slow, fast = max(rows, key=lambda row: float(row["p95"])), min(rows, key=lambda row: float(row["p95"]))
    grown = max(schema.STAGE_COLUMNS, key=lambda name: float(slow[name] - fast[name]))
    return (
        f"{called(one.service, one.method)} is slowest in {slow['server_cluster']}: its P95 is "
        f"{duration(slow['p95'])} there, {slow['p95'] / max(fast['p95'], 1):.3g} times that in "
        f"{fast['server_cluster']}; most of the difference is {spoken(grown.removesuffix('_ns'))}."
    )


def _widened(tables: Rows) -> list[str]:
    """Which means are not of calls within 1 %."""
    wide = [row for row in tables if row["width"] > nearby.WIDTHS[0]]
    if not wide:
        return []
    return [
        f"In {len(wide)} of {counted(len(tables), 'cluster')} fewer than {nearby.CALLS_MIN} calls lie within 1 % "
        f"of the P95; there the means are of calls within up to {percent(max(row['width'] for row in wide))} "
        "(column `width`)."
    ]


def compute_clusters(study: Study) -> Result:
    """F16: per selected method and cluster the components of the calls around the P95."""
    placed = local_calls(study)
    found = {one: rows for one in selected(study) if (rows := clustering.rows_of(study, one.method_id))}
    spreads = {one: spread for one, rows in found.items() if (spread := _spread(rows)) is not None}
    if not spreads:
        return absent(*(missing_calls(study) or [TWO_CLUSTERS]))
    rows = [row for one, of in found.items() for row in _named(one, of)]
    sizes, factors = [len(found[one]) for one in spreads], list(spreads.values())
    missing = missing_places(placed)
    worst = sorted(spreads, key=lambda one: -spreads[one])
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {"clusters": pa.Table.from_pylist(rows).drop_columns(["method_id"])},
        missing,
        [_finding(one, found[one]) for one in worst],
        [
            Comparison("fewest clusters of a service", _PUBLISHED_CLUSTERS[0], min(sizes), "clusters"),
            Comparison("most clusters of a service", _PUBLISHED_CLUSTERS[1], max(sizes), "clusters"),
            Comparison("P95 between clusters, least factor", _PUBLISHED_SPREAD[0], min(factors), "ratio"),
            Comparison("P95 between clusters, greatest factor", _PUBLISHED_SPREAD[1], max(factors), "ratio"),
        ],
        [
            *place_notes(placed),
            f"Clusters with {schema.SAMPLES_MIN} calls of the method (R3); means of the calls within 1 % "
            "of the P95.",
            *_widened(rows),
        ],
    )


def _remote_calls(study: Study) -> Any:
    calls = of_selected(study, staged(study.span))
    return calls.filter(calls.client_cluster.notnull() & calls.server_cluster.notnull())


def _server_side(study: Study, calls: Any) -> tuple[int, str] | None:
    """The method and the server's cluster that are looked at: Spanner's if there, then of most client clusters."""
    by = ["method_id", "server_cluster", "client_cluster"]
    counted = study.engine.arrow(
        calls.group_by(by).agg(samples=calls.count(), calls=weight(calls).sum())
    ).to_pylist()
    preferred = {
        one.method_id for one in selected(study) if one.published and one.published.service == _REMOTE_SERVICE
    }
    sides: dict[tuple[int, str], list[float]] = {}
    for row in counted:
        if row["samples"] >= nearby.CALLS_MIN and row["client_cluster"] != row["server_cluster"]:
            sides.setdefault((row["method_id"], row["server_cluster"]), []).append(row["calls"])
    if not sides:
        return None
    return max(sorted(sides), key=lambda side: (side[0] in preferred, len(sides[side]), sum(sides[side])))


def compute_remote(study: Study) -> Result:
    """F19: per client cluster the components of the median call to one method in one cluster."""
    calls = _remote_calls(study)
    side = _server_side(study, calls)
    if side is None:
        return absent(*(missing_calls(study) or [f"{nearby.CALLS_MIN} calls of one method from another cluster"]))
    to = calls.filter((calls.method_id == side[0]) & (calls.server_cluster == side[1]))
    near = nearby.around(study, to, ["client_cluster"], nearby.MEDIAN, samples_min=nearby.CALLS_MIN)
    one = next(one for one in selected(study) if one.method_id == side[0])
    rows = [
        {"service": one.service, "method": one.method, "server_cluster": side[1], **row}
        | {"is_remote": row["client_cluster"] != side[1], "wire_share": _wire(row)}
        for row in sorted(near.to_pylist(), key=lambda row: (row["p50"], row["client_cluster"]))
    ]
    remote = [row for row in rows if row["is_remote"]]
    return Result(
        Coverage.COMPLETE,
        {"client_clusters": pa.Table.from_pylist(rows)},
        findings=[_remote_finding(one, remote)],
        comparisons=[
            Comparison("client clusters of one server side", _PUBLISHED_REMOTE, len(remote), "clusters"),
            Comparison(
                "wire's share of the farthest clusters' median call", None, remote[-1]["wire_share"], "share"
            ),
        ],
        notes=[
            f"Calls to {called(one.service, one.method)} in {side[1]}, by the client's cluster; means of "
            "the calls "
            "within 1 % of the cluster's median (column `width`). The cluster's own calls are shown as a "
            "reference.",
            "The paper draws 21 clusters without saying on which side; that wire dominates and is near "
            "the speed of "
            "light it gives without a number.",
        ],
    )


def _wire(row: dict[str, Any]) -> float:
    wire = sum(row[f"{stage}_ns"] for stage in schema.WIRES)
    return float(wire / row["total_ns"]) if row["total_ns"] else 0.0


def _remote_finding(one: Selected, remote: Rows) -> str:
    far = remote[-1]
    return (
        f"From {far['client_cluster']}, the farthest of {counted(len(remote), 'cluster')}, the median call of "
        f"{called(one.service, one.method)} takes {duration(far['p50'])}; {percent(far['wire_share'])} of "
        "it is wire."
    )


FIGURES = (
    Figure("F16", "The P95 call by cluster", "3.3.3", compute_clusters),
    Figure("F19", "Calls between clusters", "3.3.5", compute_remote),
)
