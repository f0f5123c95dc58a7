"""The figures on the synthetic fleet: what it was drawn with is what they say."""

from __future__ import annotations

from typing import Any

import ibis
import numpy as np
import pyarrow as pa
import pytest

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import (
    clusters,
    completion,
    errors,
    exogenous,
    findings,
    growth,
    load,
    methodology,
    services,
    tax,
    what_if,
)
from scotfree.study.figures.result import Coverage, Figure, Result
from scotfree.study.fleet import FleetOptions, generate
from scotfree.study.fleet.metrics import DAYS, GROWTH, SATURATED
from scotfree.study.fleet.population import SHOWCASE, STATUSES
from scotfree.study.report.overview import overview
from scotfree.study.store import Store

# Few methods in few clusters, so that every half hour of each has calls enough.
OPTIONS = FleetOptions(spans=250_000, methods=20, clusters=4, partitions=4, depth=4, profiles=False)
MODULES = (growth, services, tax, completion, what_if, clusters, exogenous, load, errors, methodology)
FIGURES: tuple[Figure, ...] = tuple(figure for module in MODULES for figure in module.FIGURES)


class Listening(DuckEngine):
    """DuckDB that keeps what it was asked."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, memory="1GB", threads=2)
        self.asked: list[Any] = []

    def arrow(self, expression: Any) -> pa.Table:
        self.asked.append(expression)
        return super().arrow(expression)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp("fleet") / "store"
    generate(folder, OPTIONS)
    store = Store.open(folder)
    return Study(store, Listening(store))


@pytest.fixture(scope="module")
def results(study: Study) -> dict[str, Result]:
    return {figure.number: figure.compute(study) for figure in FIGURES}


@pytest.fixture(scope="module")
def calls(study: Study) -> dict[str, np.ndarray[Any, Any]]:
    """The oracle's view: columns of all calls."""
    names = ["service", "status", "total_ns", "sample_weight", "cpu_cycles", *schema.STAGE_COLUMNS]
    table = pa.concat_tables(list(study.store.iter_partitions(names)))
    return {name: table[name].cast(_plain(table[name].type)).to_numpy() for name in names}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def measured(result: Result) -> dict[str, float | None]:
    return {entry.what: entry.measured for entry in result.comparisons}


@pytest.mark.parametrize("number", [figure.number for figure in FIGURES])
def test_every_figure_is_complete(results: dict[str, Result], number: str) -> None:
    result = results[number]
    assert (result.coverage, result.missing) == (Coverage.COMPLETE, [])
    assert result.tables and all(table.num_rows for table in result.tables.values())


def test_growth_is_that_of_the_fleet(results: dict[str, Result]) -> None:
    assert measured(results["F1"])["growth of requests per cycle"] == pytest.approx(
        GROWTH ** (365.25 / (DAYS - 1)) - 1, abs=0.01
    )


def test_shares_of_time_are_sums_over_all_calls(
    results: dict[str, Result], calls: dict[str, np.ndarray[Any, Any]]
) -> None:
    good = calls["status"] == schema.STATUS_OK
    weight, total = calls["sample_weight"][good], calls["total_ns"][good]
    found = measured(results["F10"])
    for part, stages in tax.PARTS.items():
        time = sum(calls[f"{stage}_ns"][good] for stage in stages)
        wanted = (time * weight).sum() / (total * weight).sum()
        assert found[f"{part} of the time of all calls"] == pytest.approx(wanted, rel=1e-9)


def test_every_showcase_is_dominated_by_its_stage(results: dict[str, Result]) -> None:
    """Its stage takes most of its median call, and makes its tail."""
    wanted = {service: stage for service, (stage, _, _) in SHOWCASE.items()}
    summary = {row["service"]: row["median_stage"] for row in results["F14"].tables["summary"].to_pylist()}
    assert summary == wanted
    leaves: dict[str, tuple[float, str]] = {}
    for row in results["F15"].tables["what_if"].to_pylist():
        leaves[row["service"]] = max(leaves.get(row["service"], (0.0, "")), (row["leaves"], row["stage"]))
    assert {service: stage for service, (_, stage) in leaves.items() if service in wanted} == wanted


def test_services_and_errors_are_counted_by_weight(
    results: dict[str, Result], calls: dict[str, np.ndarray[Any, Any]]
) -> None:
    weight, failed = calls["sample_weight"], calls["status"] != schema.STATUS_OK
    disk = weight[calls["service"] == "network-disk"].sum() / weight.sum()
    assert measured(results["F8"])["Network Disk: share of calls"] == pytest.approx(disk)
    found = measured(results["F23"])
    assert found["calls that fail"] == pytest.approx(weight[failed].sum() / weight.sum())
    assert found["calls that fail"] == pytest.approx(OPTIONS.error_share, rel=0.2)
    assert found["cancelled: share of errors"] == pytest.approx(STATUSES["CANCELLED"][0], abs=0.05)


def test_load_is_felt_where_it_is_felt(results: dict[str, Result]) -> None:
    """The cache queues where processors are busy; the store of keys runs on processors of its own."""
    rho = {(row["service"], row["variable"]): row for row in results["F17"].tables["spearman"].to_pylist()}
    assert rho["ssd-cache", "cpu_util"]["rho_low"] > 0.2
    assert rho["kv-store", "cpu_util"]["rho_low"] < 0.2


def test_saturated_services_are_found(results: dict[str, Result]) -> None:
    rows = results["F22"].tables["summary"].to_pylist()
    assert {row["service"] for row in rows if row["imbalance_machines"] > 1.2} == set(SATURATED)


def test_between_clusters_it_is_the_wire(results: dict[str, Result]) -> None:
    rows = [row for row in results["F19"].tables["client_clusters"].to_pylist() if row["is_remote"]]
    assert rows and all(row["wire_share"] > 0.8 for row in rows)


def test_the_extent_is_the_fleets(results: dict[str, Result], study: Study) -> None:
    rows = {row["what"]: row["value"] for row in results["S2.1"].tables["extent"].to_pylist()}
    assert rows["spans"] == study.store.manifest.spans and rows["methods"] == OPTIONS.methods
    assert (rows["clusters"], rows["sampling_least"], rows["sampling_greatest"]) == (4, 0.1, 1.0)


def test_findings_are_few_and_ranked(results: dict[str, Result], study: Study) -> None:
    found = findings.top(study)
    assert {"F15", "F10", "F16", "F23"} <= {one.number for one in found}
    assert len(found) <= findings.MOST
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
    # A reader who follows the sentence to its figure finds the method there.
    tails = {one.sentence for one in found if one.number == "F15"}
    assert tails and tails <= set(results["F15"].findings)


@pytest.mark.parametrize("dialect", ["pyspark", "clickhouse", "bigquery"])
def test_every_question_is_said_in_other_dialects(results: dict[str, Result], study: Study, dialect: str) -> None:
    assert results and overview(study).groups
    assert isinstance(study.engine, Listening) and len(study.engine.asked) > 20
    if dialect == "pyspark":
        # Its compiler asks for options that come with the backend.
        _ = ibis.pyspark
    for expression in study.engine.asked:
        assert "SELECT" in ibis.to_sql(expression, dialect=dialect)
