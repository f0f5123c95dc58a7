"""Processors used against those allowed, of clusters and of machines (F22)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study


@once
def machines(study: Study) -> pa.Table:
    """service, cluster, machine (null: not told), used, limit (means over time) and load, their ratio.

    Only where both are known and the limit is not 0; in the order of service, cluster, machine.
    """
    metric = study.metric
    wanted = metric.series.isin(["cpu_used", "cpu_limit"])
    named = metric.filter(wanted & metric.service.notnull() & metric.cluster.notnull())
    by = ["service", "cluster", "machine"]
    # An empty name joins, a null one does not.
    named = named.mutate(machine=named.machine.fill_null(""))
    found = named.group_by(by).agg(
        used=named.value.mean(where=named.series == "cpu_used"),
        limit=named.value.mean(where=named.series == "cpu_limit"),
    )
    known = found.filter(found["used"].notnull() & (found["limit"] > 0))
    return study.engine.arrow(known.mutate(load=known["used"] / known["limit"]).order_by(by))


def clusters(table: pa.Table) -> list[dict[str, Any]]:
    """Of each service and cluster the load: what all its machines use over what they may.

    A series of the cluster as a whole is taken only where there is none of its machines.
    """
    parts: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        parts.setdefault((row["service"], row["cluster"]), []).append(row)
    found = []
    for (service, cluster), rows in sorted(parts.items()):
        own = [row for row in rows if row["machine"]] or rows
        used, limit = (sum(row[name] for row in own) for name in ("used", "limit"))
        told = sum(1 for row in own if row["machine"])
        found.append({"service": service, "cluster": cluster, "machines": told, "load": used / limit})
    return found
