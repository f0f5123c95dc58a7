"""F1, F17, F18, F22 and Table 2: planted growth, load and dependence are found, and only where they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import metrics, spans, study_of

from scotfree.study import schema
from scotfree.study.analysis.calls import HALF_HOUR_NS
from scotfree.study.analysis.exogenous import BUCKETS
from scotfree.study.analysis.rank import PAIRS_MIN, ranks, spearman
from scotfree.study.analysis.study import Study
from scotfree.study.figures import exogenous, growth, load
from scotfree.study.figures.result import Coverage
from scotfree.study.report import text

DAY_NS = 48 * HALF_HOUR_NS
QUEUE = schema.STAGES.index("server_recv_queue")
WINDOWS, PER_WINDOW = 48, 40
CLUSTERS = ("east", "west")


def point(series: str, ts_ns: int, value: float, **labels: str) -> dict[str, Any]:
    return {"series": series, "ts_ns": ts_ns, "value": value, **labels}


def growing(days: int, rate: float) -> list[dict[str, Any]]:
    """Two services; requests per cycle grow by `rate` a year. Day 5 has three samples of rps, day 7 a gap."""
    rows = []
    for day in range(days):
        start = day * DAY_NS
        for service, cycles in (("a", 1e9), ("b", 3e9)):
            rps = cycles / 1e5 * (1 + rate) ** (day / 365.25)
            rows += [point("rps", start + at, rps, service=service) for at in range(3 if day == 5 else 1)]
            rows.append(point("cpu_cycles", start, cycles, service=service))
            if day == 7:
                rows.append(point("rps", start + HALF_HOUR_NS, rps, service=service))
    return rows


def test_growth_per_year_is_the_planted_one(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(total_ns=np.ones(1)), metrics(growing(60, 0.3)))
    result = growth.compute(study)
    assert result.coverage is Coverage.COMPLETE
    year, in_all = result.comparisons
    assert (year.published, in_all.published) == (0.30, 0.64)
    assert year.measured == pytest.approx(0.3, rel=1e-6)
    assert in_all.measured == pytest.approx(1.3 ** (59 / 365.25) - 1, rel=1e-6)
    ratios = result.tables["days"]["ratio"].to_pylist()
    assert ratios[0] == 1 and ratios[5] == pytest.approx(1.3 ** (5 / 365.25))
    assert ratios[7] == pytest.approx(1.3 ** (7 / 365.25))


def test_a_few_days_tell_no_growth(tmp_path: Path) -> None:
    result = growth.compute(study_of(tmp_path, spans(total_ns=np.ones(1)), metrics(growing(9, 0.3))))
    assert result.coverage is Coverage.PARTIAL and "14 days" in result.missing[0]
    assert result.comparisons[0].measured is None
    result = growth.compute(study_of(tmp_path / "none", spans(total_ns=np.ones(1))))
    assert result.coverage is Coverage.ABSENT


def felt(seed: int = 2) -> tuple[dict[str, Any], list[dict[str, Any]], np.ndarray[Any, Any]]:
    """Calls whose receive queue follows cpu_util of their own cluster and half hour; cpi has nothing to "
    "do with it."""
    chance = np.random.default_rng(seed)
    util = chance.uniform(0.1, 0.9, (len(CLUSTERS), WINDOWS)) * np.array([[0.7], [1.0]])
    cluster, window = (axis.ravel().repeat(PER_WINDOW) for axis in np.indices(util.shape))
    stages = chance.integers(1_000, 1_100, (len(cluster), 9))
    stages[:, QUEUE] = 100_000 * util[cluster, window] * chance.uniform(0.9, 1.1, len(cluster))
    rows = [
        point(series, place * HALF_HOUR_NS + 5, value, service="Cart", cluster=name)
        for at, name in enumerate(CLUSTERS)
        for place in range(WINDOWS)
        for series, value in (("cpu_util", util[at, place]), ("cpi", chance.random()))
    ]
    # Of another service in the same place: the opposite, so that a wrong join would show.
    rows += [
        point("cpu_util", row["ts_ns"], 1 - row["value"], service="Other", cluster=row["cluster"]) for row in rows
    ]
    where = [CLUSTERS[place] for place in cluster]
    columns = {
        "stages": stages,
        "server_cluster": where,
        "client_cluster": where,
        "start_ns": window * HALF_HOUR_NS + chance.integers(0, HALF_HOUR_NS, len(window)),
    }
    return columns, rows, util


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    columns, rows, _ = felt()
    return study_of(tmp_path_factory.mktemp("felt"), spans(**columns), metrics(rows))


def window_tails(columns: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The oracle's P95 by cluster and half hour."""
    totals = columns["stages"].sum(axis=1).reshape(len(CLUSTERS), WINDOWS, PER_WINDOW)
    found: np.ndarray[Any, Any] = np.sort(totals, axis=2)[:, :, int(np.ceil(0.95 * PER_WINDOW)) - 1]
    return found


def test_the_variable_that_matters_is_told_from_the_one_that_does_not(study: Study) -> None:
    result = exogenous.compute_relation(study)
    columns, _, util = felt()
    rho = {row["variable"]: row for row in result.tables["spearman"].to_pylist()}
    order = [np.argsort(np.argsort(values.ravel())) for values in (util, window_tails(columns))]
    assert rho["cpu_util"]["rho"] == pytest.approx(np.corrcoef(order[0], order[1])[0, 1], rel=1e-9)
    assert rho["cpu_util"]["pairs"] == len(CLUSTERS) * WINDOWS
    assert rho["cpu_util"]["rho_low"] > 0.9
    assert rho["cpi"]["rho_low"] < 0 < rho["cpi"]["rho_high"]
    assert "rises with processor use" in result.findings[0] and "cycles per instruction" not in result.findings[0]
    # Two of four variables are there.
    assert result.coverage is Coverage.PARTIAL
    assert [name.split()[2] for name in result.missing] == ["mem_bw", "long_wakeup_rate"]


def test_a_bucket_holds_the_calls_that_met_its_values(study: Study) -> None:
    columns, _, util = felt()
    rows = [
        row
        for row in exogenous.compute_relation(study).tables["buckets"].to_pylist()
        if row["variable"] == "cpu_util"
    ]
    assert [row["bucket"] for row in rows] == list(range(BUCKETS))
    bucket = np.argsort(np.argsort(util.ravel())) * BUCKETS // util.size
    own = columns["stages"].reshape(util.size, PER_WINDOW, 9)[bucket == 9].reshape(-1, 9)
    totals = own.sum(axis=1)
    p95 = np.sort(totals)[int(np.ceil(0.95 * len(totals))) - 1]
    near = own[np.abs(totals - p95) <= rows[9]["width"] * p95]
    assert rows[9]["p95"] == p95 and rows[9]["calls"] == len(near)
    assert rows[9]["server_recv_queue_ns"] == pytest.approx(near[:, QUEUE].mean())
    assert rows[9]["value"] == pytest.approx(util.ravel()[bucket == 9].mean())


def test_a_day_of_the_fastest_and_the_slowest_cluster(study: Study) -> None:
    result = exogenous.compute_day(study)
    columns, _, util = felt()
    rows = result.tables["day"].to_pylist()
    assert {(row["which"], row["cluster"]) for row in rows} == {("fastest", "east"), ("slowest", "west")}
    east = [row for row in rows if row["cluster"] == "east"]
    assert [row["p95_ns"] for row in east] == window_tails(columns)[0].tolist()
    assert [row["cpu_util"] for row in east] == pytest.approx(util[0].tolist())
    assert [row["start_ns"] for row in east] == [place * HALF_HOUR_NS for place in range(WINDOWS)]
    assert east[0]["mem_bw"] is None and result.coverage is Coverage.PARTIAL


def test_table_2_says_the_ranges(study: Study) -> None:
    result = exogenous.compute_table_2(study)
    rows = {row["variable"]: row for row in result.tables["variables"].to_pylist()}
    assert rows["mem_bw"]["clusters"] == 0 and rows["mem_bw"]["median"] is None
    assert (rows["cpi"]["clusters"], rows["cpi"]["half_hours"]) == (2, WINDOWS)
    assert 0 <= rows["cpi"]["least"] <= rows["cpi"]["median"] <= rows["cpi"]["greatest"] <= 1


def test_without_metrics_the_state_of_clusters_is_missing(tmp_path: Path) -> None:
    without = study_of(tmp_path, spans(**felt()[0]))
    for compute in (exogenous.compute_table_2, exogenous.compute_relation, exogenous.compute_day):
        result = compute(without)
        assert result.coverage is Coverage.ABSENT and result.missing[0].startswith("the metrics cpu_util")


def loads() -> list[dict[str, Any]]:
    """Spanner: 0.2 and 0.6 in two clusters, in the second three machines of 0.3, 0.6 and 0.9."""
    rows = []
    for cluster, machine, used in (("a", "a1", 2), ("b", "b1", 3), ("b", "b2", 6), ("b", "b3", 9)):
        for ts, swing in ((0, -1), (HALF_HOUR_NS, 1)):
            labels = {"service": "Spanner", "cluster": cluster, "machine": machine}
            rows += [point("cpu_used", ts, used + swing, **labels), point("cpu_limit", ts, 10, **labels)]
    # Of the cluster as a whole, beside its machines: not counted twice.
    rows += [point(name, 0, 10, service="Spanner", cluster="b") for name in ("cpu_used", "cpu_limit")]
    return rows


def test_load_and_its_imbalance(tmp_path: Path) -> None:
    result = load.compute(study_of(tmp_path, spans(total_ns=np.ones(1)), metrics(loads())))
    assert result.coverage is Coverage.COMPLETE
    curves = {(row["over"], row["name"]): (row["load"], row["cdf"]) for row in result.tables["load"].to_pylist()}
    assert curves["clusters", "a"] == pytest.approx((0.2, 0.5))
    assert curves["clusters", "b"] == pytest.approx((0.6, 1.0))
    assert curves["machines of b", "b1"] == pytest.approx((0.3, 1 / 3))
    summary = result.tables["summary"].to_pylist()[0]
    assert summary["imbalance_clusters"] == pytest.approx(0.6 / 0.4)
    assert summary["imbalance_machines"] == pytest.approx(0.9 / 0.6)
    greatest = {entry.what.split(":")[0]: entry.measured for entry in result.comparisons}
    assert greatest == {"Spanner": pytest.approx(0.9), "F1": None, "ML Inference": None}
    # The paper's text gives no number: its picture does.
    assert {text.published(entry).replace("\u202f", " ") for entry in result.comparisons} == {
        "about 100 % (read off a picture)"
    }


def test_load_of_clusters_alone_is_partial(tmp_path: Path) -> None:
    rows = [row | {"machine": None} for row in loads()]
    result = load.compute(study_of(tmp_path, spans(total_ns=np.ones(1)), metrics(rows)))
    assert result.coverage is Coverage.PARTIAL and result.missing == [load.MACHINES]


def test_equal_values_share_their_rank() -> None:
    assert ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(-50, 50)), min_size=PAIRS_MIN, max_size=40))
def test_rho_knows_only_the_order(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array(values, float) for values in zip(*pairs, strict=True))
    found, stretched = spearman(left, right), spearman(np.exp(left / 10), right**3)
    turned = spearman(left, -right)
    if found is None or stretched is None or turned is None:
        assert len(set(left)) == 1 or len(set(right)) == 1
        return
    assert stretched.rho == pytest.approx(found.rho)
    assert turned.rho == pytest.approx(-found.rho)
    assert -1 <= found.low <= found.rho + 1e-12 and found.rho - 1e-12 <= found.high <= 1
