"""F8, F23, Table 1 and section 2.1: counts against plain sums over the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.analysis.selection import TABLE_1, plain_name, selected
from scotfree.study.analysis.study import Study
from scotfree.study.figures import errors, methodology, services
from scotfree.study.figures.result import Coverage, Result

CALLS = 4_000
SERVICES = [f"service-{index}" for index in range(10)] + ["network_disk"]


def columns(seed: int = 5) -> dict[str, Any]:
    """Eleven services, of which the last has the name of one in the paper's table; two methods each."""
    chance = np.random.default_rng(seed)
    service = chance.choice(SERVICES, CALLS, p=[0.05] * 10 + [0.5])
    status = chance.choice(
        [schema.STATUS_OK, "CANCELLED", "NOT_FOUND", "INTERNAL"], CALLS, p=[0.9, 0.05, 0.03, 0.02]
    )
    return {
        "service": service.tolist(),
        "method": chance.choice(["Get", "Put"], CALLS, p=[0.7, 0.3]).tolist(),
        "client_service": chance.choice(["Front", "Cart"], CALLS, p=[0.8, 0.2]).tolist(),
        "status": status.tolist(),
        "total_ns": chance.integers(1_000, 100_000, CALLS),
        "req_bytes": chance.integers(64, 2_000, CALLS),
        "resp_bytes": chance.integers(64, 40_000, CALLS),
        "cpu_cycles": chance.lognormal(0, 1, CALLS),
        "sample_weight": chance.choice([1.0, 5.0], CALLS),
        "is_hedge": ((status == "CANCELLED") & (chance.random(CALLS) < 0.5)).tolist(),
        "server_cluster": ["a"] * CALLS,
        "client_cluster": ["b"] * CALLS,
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("services"), spans(**columns()))


def weighted(of: np.ndarray[Any, Any], value: str | None = None) -> float:
    rows = columns()
    values = np.ones(CALLS) if value is None else np.array(rows[value], float)
    return float((values * rows["sample_weight"])[of].sum())


def measured(result: Result) -> dict[str, float | None]:
    return {entry.what: entry.measured for entry in result.comparisons}


def test_shares_of_services_are_weighted_sums(study: Study) -> None:
    result = services.compute_shares(study)
    assert result.coverage is Coverage.COMPLETE
    rows = {(row["by"], row["service"]): row["share"] for row in result.tables["shares"].to_pylist()}
    disk, all_calls = np.array(columns()["service"]) == "network_disk", np.ones(CALLS, bool)
    assert rows["calls", "network_disk"] == pytest.approx(weighted(disk) / weighted(all_calls))
    both = [weighted(of, "req_bytes") + weighted(of, "resp_bytes") for of in (disk, all_calls)]
    assert rows["bytes", "network_disk"] == pytest.approx(both[0] / both[1])
    cycles = weighted(disk, "cpu_cycles") / weighted(all_calls, "cpu_cycles")
    assert rows["cycles", "network_disk"] == pytest.approx(cycles)
    assert [name for by, name in rows if by == "calls"][-1] == services.OTHER
    assert sum(share for (by, _), share in rows.items() if by == "calls") == pytest.approx(1)
    assert measured(result)["Network Disk: share of cycles"] == pytest.approx(cycles)
    assert measured(result)["F1: share of calls"] is None


def test_the_selected_are_the_papers_services_first(study: Study) -> None:
    found = selected(study)
    assert len(found) == 8
    assert [one.service for one in found if one.published] == ["network_disk"]
    good = np.array(columns()["status"]) == schema.STATUS_OK
    service, method = np.array(columns()["service"]), np.array(columns()["method"])
    times = {name: weighted(good & (service == name) & (method == "Get"), "total_ns") for name in SERVICES[:10]}
    assert {one.service for one in found} - {"network_disk"} == set(
        sorted(times, key=lambda name: -times[name])[:7]
    )
    for one in found:
        of = good & (service == one.service) & (method == one.method)
        assert one.time_share == pytest.approx(weighted(of, "total_ns") / weighted(good, "total_ns"))


def test_table_1_names_client_and_size(study: Study) -> None:
    result = services.compute_table_1(study)
    row = next(row for row in result.tables["services"].to_pylist() if row["service"] == "network_disk")
    assert (row["client"], row["method"]) == ("Front", "Get")
    assert row["published_category"] == "storage" and row["response_bytes"] > row["request_bytes"]
    sizes = {entry.what: entry for entry in result.comparisons}
    assert len(sizes) == 8
    assert sizes["Network Disk: size of a call"].published == 32_000
    assert sizes["Network Disk: size of a call"].measured == row["response_bytes"]


def test_table_1_says_whose_time_a_share_is(study: Study) -> None:
    result = services.compute_table_1(study)
    row = next(row for row in result.tables["services"].to_pylist() if row["service"] == "network_disk")
    rows = columns()
    good = np.array(rows["status"]) == schema.STATUS_OK
    of = good & (np.array(rows["service"]) == "network_disk") & (np.array(rows["method"]) == row["method"])
    by_front = of & (np.array(rows["client_service"]) == "Front")
    whole = weighted(good, "total_ns")
    assert row["time_share"] == pytest.approx(weighted(of, "total_ns") / whole)
    assert row["client_time_share"] == pytest.approx(weighted(by_front, "total_ns") / whole)
    assert row["client_time_share"] < row["time_share"]
    said = next(finding for finding in result.findings if finding.startswith("network_disk Get takes"))
    assert "; its calls by Front, which calls it most, take " in said


def test_names_of_the_paper_are_found_however_written() -> None:
    assert {plain_name(row.service) for row in TABLE_1} >= {plain_name("kv_store"), plain_name("ML-inference")}
    assert plain_name("SSD cache") == plain_name("ssd-cache") != plain_name("ssd")


def test_errors_by_count_and_by_cycles(study: Study) -> None:
    result = errors.compute(study)
    assert result.coverage is Coverage.COMPLETE
    status, all_calls = np.array(columns()["status"]), np.ones(CALLS, bool)
    failed, cancelled = status != schema.STATUS_OK, status == "CANCELLED"
    found = measured(result)
    assert found["calls that fail"] == pytest.approx(weighted(failed) / weighted(all_calls))
    assert found["cancelled: share of errors"] == pytest.approx(weighted(cancelled) / weighted(failed))
    wasted = weighted(cancelled, "cpu_cycles") / weighted(failed, "cpu_cycles")
    assert found["cancelled: share of the errors' cycles"] == pytest.approx(wasted)
    hedging = result.tables["hedging"].to_pylist()[0]
    hedge = np.array(columns()["is_hedge"])
    assert hedging["share_of_calls"] == pytest.approx(weighted(hedge) / weighted(all_calls))
    cycles = weighted(hedge, "cpu_cycles") / weighted(all_calls, "cpu_cycles")
    assert hedging["share_of_cycles"] == pytest.approx(cycles)
    assert hedging["share_of_cancelled"] == pytest.approx(weighted(hedge) / weighted(cancelled))


def test_errors_without_cycles_or_links_are_partial(tmp_path: Path) -> None:
    status = [schema.STATUS_OK, "CANCELLED"] * 50
    result = errors.compute(study_of(tmp_path, spans(total_ns=np.ones(100), status=status)))
    assert result.coverage is Coverage.PARTIAL
    assert any("rpc.cpu.cycles" in name for name in result.missing)
    assert any("hedged" in name for name in result.missing)
    assert measured(result)["cancelled: share of errors"] == 1
    assert measured(result)["not found: share of errors"] == 0
    assert measured(result)["not found: share of the errors' cycles"] is None
    assert "hedging" not in result.tables


@pytest.mark.parametrize(("days", "per_day", "said"), [(0.25, 100, "all count as one day's"), (4, 25, "4.0 days")])
def test_a_days_calls_stand_beside_a_days(tmp_path: Path, days: float, per_day: float, said: str) -> None:
    starts = np.linspace(0, days * 86_400e9, 100).astype(np.int64)
    result = methodology.compute(study_of(tmp_path, spans(total_ns=np.ones(100), start_ns=starts)))
    assert measured(result)["calls sampled in a day"] == pytest.approx(per_day)
    assert measured(result)["traces"] == 100
    assert any(said in note for note in result.notes)


def test_the_extent_counts_weights(study: Study) -> None:
    result = methodology.compute(study)
    rows = dict(zip(*(result.tables["extent"][name].to_pylist() for name in ("what", "value")), strict=True))
    weights = columns()["sample_weight"]
    assert rows["spans"] == rows["traces"] == CALLS
    assert (rows["methods"], rows["services"], rows["clusters"]) == (22, 11, 2)
    assert rows["calls"] == weights.sum()
    assert rows["effective_spans"] == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert (rows["sampling_least"], rows["sampling_greatest"]) == (0.2, 1.0)
    assert {entry.published for entry in result.comparisons} == {10_000, 722e9, 1e9, 100, 700}
