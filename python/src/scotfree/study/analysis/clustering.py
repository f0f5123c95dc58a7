"""The clusters of a method in the order of its median there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import nearby
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.place import local_calls
from scotfree.study.analysis.study import Study


@once
def tails(study: Study) -> pa.Table:
    """`nearby.around` the P95 of each selected method in each cluster, calls within the cluster only (F16)."""
    placed = local_calls(study)
    calls = placed.calls.filter(placed.calls.server_cluster.notnull())
    by = ["method_id", "server_cluster"]
    found = nearby.around(study, calls, by, nearby.TAIL, samples_min=schema.SAMPLES_MIN)
    return found.sort_by([("method_id", "ascending"), ("p50", "ascending"), ("server_cluster", "ascending")])


def rows_of(study: Study, method_id: int) -> list[dict[str, Any]]:
    """The rows of one method, the cluster with the least median first."""
    found = tails(study)
    rows: list[dict[str, Any]] = found.filter(pc.equal(found["method_id"], method_id)).to_pylist()
    return rows
