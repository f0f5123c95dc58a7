"""The clusters of a method in the order of its median there."""

from __future__ import annotations

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


def medians(study: Study, method_id: int) -> dict[str, float]:
    """The method's median by cluster, the fastest first."""
    found = tails(study)
    rows = found.filter(pc.equal(found["method_id"], method_id))
    return dict(zip(rows["server_cluster"].to_pylist(), rows["p50"].to_pylist(), strict=True))
