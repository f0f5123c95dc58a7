"""F14, F16 and F19 against plain numpy: what the time of calls consists of, by quantile and by cluster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.analysis.nearby import WIDTHS
from scotfree.study.analysis.study import Study
from scotfree.study.figures import clusters, completion
from scotfree.study.figures.result import Coverage

CALLS = 6_000
WIRE = schema.STAGES.index("request_wire")
QUEUE = schema.STAGES.index("server_recv_queue")
CLUSTERS = ("east", "north", "west")


def columns() -> dict[str, Any]:
    """Spanner's Read in three clusters: in the west the receive queue is long, between clusters the wire is."""
    chance = np.random.default_rng(11)
    server, client = (chance.choice(CLUSTERS, CALLS, p=[0.4, 0.3, 0.3]) for _ in range(2))
    stages = chance.integers(10_000, 20_000, (CALLS, 9))
    stages[:, schema.APP] = chance.lognormal(11, 0.5, CALLS)
    stages[server == "west", QUEUE] *= 20
    stages[server != client, WIRE] += 5_000_000
    return {
        "stages": stages,
        "service": ["Spanner"] * CALLS,
        "method": ["Read"] * CALLS,
        "server_cluster": server.tolist(),
        "client_cluster": client.tolist(),
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("components"), spans(**columns()))


def local() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Stages and clusters of the calls that stay within one."""
    server, client = (np.array(columns()[name]) for name in ("server_cluster", "client_cluster"))
    return columns()["stages"][server == client], server[server == client]


def rank(values: np.ndarray[Any, Any], p: float) -> float:
    return float(np.sort(values)[int(np.ceil(p * len(values))) - 1])


def test_parts_of_equal_weight_have_the_means_of_their_calls(study: Study) -> None:
    result = completion.compute(study)
    assert result.coverage is Coverage.COMPLETE
    stages, _ = local()
    ordered = stages[np.argsort(stages.sum(axis=1), kind="stable")]
    rows = result.tables["cdf"].to_pylist()
    assert [row["cdf"] for row in rows] == pytest.approx([(place + 1) / 100 for place in range(100)])
    for place in (0, 49, 94, 99):
        # A call is of the part in which its rank ends.
        ends = [int(np.floor(len(ordered) * share / 100 + 1e-9)) for share in (place, place + 1)]
        part = ordered[ends[0] : ends[1]]
        assert rows[place]["calls"] == len(part)
        assert rows[place]["total_ns"] == pytest.approx(part.sum(axis=1).mean())
        assert rows[place]["server_app_ns"] == pytest.approx(part[:, schema.APP].mean())
    totals = stages.sum(axis=1)
    summary = result.tables["summary"].to_pylist()[0]
    assert summary["tail_ratio"] == pytest.approx(rank(totals, 0.95) / rank(totals, 0.5))
    assert summary["samples"] == len(totals) and summary["tail_stage"] == "server_recv_queue"
    published = [entry.published for entry in result.comparisons]
    assert published == [0.25, 0.66, 0.30, 0.83, 1.86, 10.6]


def test_clusters_have_the_components_around_their_own_tail(study: Study) -> None:
    result = clusters.compute_clusters(study)
    assert result.coverage is Coverage.COMPLETE
    stages, where = local()
    rows = {row["server_cluster"]: row for row in result.tables["clusters"].to_pylist()}
    assert list(rows) == sorted(rows, key=lambda name: rank(stages[where == name].sum(axis=1), 0.5))
    for name in CLUSTERS:
        own = stages[where == name]
        totals = own.sum(axis=1)
        p95 = rank(totals, 0.95)
        width = next(width for width in WIDTHS if (np.abs(totals - p95) <= width * p95).sum() >= 10)
        near = own[np.abs(totals - p95) <= width * p95]
        assert rows[name]["p95"] == p95 and rows[name]["width"] == width
        assert rows[name]["calls"] == len(near)
        assert rows[name]["server_recv_queue_ns"] == pytest.approx(near[:, QUEUE].mean())
        # R4: the wire between clusters is not in it.
        assert rows[name]["request_wire_ns"] < 20_000
    assert "slowest in west" in result.findings[0] and "server receive queue" in result.findings[0]
    found = {entry.what: entry for entry in result.comparisons}
    most = found["most clusters of a service"]
    assert (most.published, most.measured) == (44, 3)
    ratio = rows["west"]["p95"] / min(row["p95"] for row in rows.values())
    factor = found["P95 between clusters, greatest factor"]
    assert factor.published == 10.0 and factor.measured == pytest.approx(ratio)


def test_between_clusters_the_wire_is_told(study: Study) -> None:
    result = clusters.compute_remote(study)
    rows = result.tables["client_clusters"].to_pylist()
    (to,) = {row["server_cluster"] for row in rows}
    server, client = (np.array(columns()[name]) for name in ("server_cluster", "client_cluster"))
    for row in rows:
        own = columns()["stages"][(server == to) & (client == row["client_cluster"])]
        totals = own.sum(axis=1)
        median = rank(totals, 0.5)
        near = own[np.abs(totals - median) <= row["width"] * median]
        assert row["is_remote"] == (row["client_cluster"] != to)
        assert row["request_wire_ns"] == pytest.approx(near[:, WIRE].mean())
    assert sum(row["is_remote"] for row in rows) == 2
    assert "is wire" in result.findings[0]


def test_where_few_calls_are_near_the_width_grows(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Totals 4 % apart: within 1 % of the P95 lies one call, within 20 % ten."""
    stages = np.zeros((200, 9), np.int64)
    stages[:, schema.APP] = 1_000_000 * 1.04 ** np.arange(200)
    where = ["a"] * 100 + ["b"] * 100
    table = spans(stages=stages, server_cluster=where, client_cluster=where)
    result = clusters.compute_clusters(study_of(tmp_path_factory.mktemp("few"), table))
    widths = {row["server_cluster"]: (row["width"], row["calls"]) for row in result.tables["clusters"].to_pylist()}
    p95 = stages[94, schema.APP]
    near = int((np.abs(stages[:100, schema.APP] - p95) <= 0.2 * p95).sum())
    assert widths["a"] == (0.2, near)
    assert any("fewer than 10 calls" in note for note in result.notes)


def test_without_clusters_calls_cannot_be_kept_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    table = spans(stages=columns()["stages"][:300])
    study = study_of(tmp_path_factory.mktemp("nowhere"), table)
    assert completion.compute(study).coverage is Coverage.PARTIAL
    assert any("cluster" in name for name in completion.compute(study).missing)
    for compute in (clusters.compute_clusters, clusters.compute_remote):
        assert compute(study).coverage is Coverage.ABSENT
        assert ["cluster" in name for name in compute(study).missing] == [True]
