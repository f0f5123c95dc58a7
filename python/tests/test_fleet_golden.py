"""Figures of a generated store against the fleet's truth; and that the comparison sees planted faults."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import all_figures
from scotfree.study.figures.result import Coverage, Result
from scotfree.study.fleet import FleetOptions, Truth, generate
from scotfree.study.store import Store

# Figure, its table, the quantity of the truth.
TABLES = [
    ("F2", "methods", "total"),
    ("F4", "methods", "descendants"),
    ("F5", "methods", "ancestors"),
    ("F6", "requests_methods", "req_bytes"),
    ("F6", "responses_methods", "resp_bytes"),
    ("F7", "methods", "size_ratio"),
    ("F11", "methods", "tax_ratio"),
    ("F12", "methods", "network"),
    ("F13", "methods", "queue"),
    ("F21", "methods", "cpu_cycles"),
]
FIGURES = {figure.number: figure for figure in all_figures()}
OPTIONS = FleetOptions(spans=60_000, methods=60, services=14, seed=3, partitions=4, clusters=6)
PS = [column(p) for p in schema.QUANTILES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fleet") / "store"


@pytest.fixture(scope="module")
def truth(folder: Path) -> Truth:
    return generate(folder, OPTIONS)


@pytest.fixture(scope="module")
def study(folder: Path, truth: Truth) -> Study:
    assert truth.methods
    return _study(folder)


def _study(folder: Path) -> Study:
    store = Store.open(folder)
    return Study(store, DuckEngine(store, threads=2))


@pytest.mark.parametrize(("number", "table", "quantity"), TABLES)
def test_a_figure_s_quantiles_are_the_truth_s(
    study: Study, truth: Truth, number: str, table: str, quantity: str
) -> None:
    made = FIGURES[number].compute(study)
    assert made.coverage is Coverage.COMPLETE
    assert _differences(made.tables[table], truth.quantiles(quantity)) == []


def _differences(found: pa.Table, expected: dict[int, dict[str, float]]) -> list[str]:
    """Where a table of quantiles is not the truth: sketched values may be off by their bound, exact ones not."""
    rows = {row["method_id"]: row for row in found.to_pylist()}
    wrong = [f"methods {sorted(rows.keys() ^ expected.keys())}"] if rows.keys() != expected.keys() else []
    for method in rows.keys() & expected.keys():
        row, true = rows[method], expected[method]
        bound = 1e-12 if row["is_exact"] else schema.SKETCH_ERROR
        wrong += [
            f"{method} {name}: {row[name]} is not {true[name]}"
            for name in ("samples", "weight", *PS)
            if not np.isclose(
                row[name], true[name], rtol=1e-12 if name in ("samples", "weight") else bound, atol=0
            )
        ]
    return wrong


def test_the_order_is_that_of_the_median(study: Study) -> None:
    medians = study.quantiles("total")["p50"].to_numpy()
    assert (np.diff(medians) >= 0).all()
    assert np.ptp(medians) > 0


def test_popularity_is_the_truth_s(study: Study, truth: Truth) -> None:
    made = FIGURES["F3"].compute(study)
    calls, time = truth.calls(), truth.time_ns()
    for row in made.tables["methods"].to_pylist():
        assert row["share"] == pytest.approx(calls[row["method_id"]] / calls.sum())
        assert row["time_share"] == pytest.approx(time[row["method_id"]] / time.sum())
    ranked = np.sort(calls)[::-1] / calls.sum()
    popular = [each for each in made.comparisons if "most popular" in each.what]
    assert [each.measured for each in popular] == [
        pytest.approx(ranked[0]),
        pytest.approx(ranked[:10].sum()),
        None,  # 100 methods, of 60.
    ]


@pytest.mark.parametrize("stages", [["server_recv_queue"], ["request_wire", "response_wire"]])
def test_what_if_is_the_truth_s(study: Study, truth: Truth, stages: list[str]) -> None:
    expected = truth.what_if(stages)
    found = {row["method_id"]: row for row in study.what_if([stages]).to_pylist() if row["method_id"] is not None}
    exact = {row["method_id"] for row in study.quantiles("total").to_pylist() if row["is_exact"]}
    assert len(exact & expected.keys()) > 20
    for method in exact & expected.keys():
        tail, leaves = expected[method]
        assert found[method]["tail"] == pytest.approx(tail)
        assert found[method]["leaves"] == pytest.approx(leaves / tail)


def test_each_showcase_service_is_dominated_by_its_stage(study: Study, truth: Truth) -> None:
    leaves: dict[str, dict[str, float]] = {}
    for row in study.what_if().to_pylist():
        leaves.setdefault(row["service"], {})[row["removed"]] = row["leaves"]
    for service, stage in truth.parameters()["dominant_stage"].items():
        assert max(leaves[service], key=lambda each: leaves[service][each]) == stage, service


def test_tax_is_the_truth_s(study: Study, truth: Truth) -> None:
    rows = FIGURES["F10"].compute(study).tables["shares"].to_pylist()
    found = {row["part"]: row["share"] for row in rows if row["scope"] == "all"}
    for part, share in truth.tax().items():
        assert found[part] == pytest.approx(share), part


def test_cycle_tax_is_the_truth_s(study: Study, truth: Truth) -> None:
    measured = {each.what: each.measured for each in FIGURES["F20"].compute(study).comparisons}
    for category in ("compression", "networking", "serialization"):
        assert measured[f"share of processor time in {category}"] == pytest.approx(
            truth.parameters()["cycle_shares"][category]
        )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    folder = tmp_path_factory.mktemp("small") / "store"
    return folder, generate(folder, FleetOptions(spans=4_000, methods=24, partitions=1, metrics=False))


@pytest.fixture(scope="module")
def small_study(small: tuple[Path, Truth]) -> Study:
    return _study(small[0])


def test_services_have_the_truth_s_cycles(study: Study, truth: Truth) -> None:
    measured = {each.what: each.measured for each in FIGURES["F8"].compute(study).comparisons}
    shares = truth.cycle_shares()
    assert measured["Network Disk: share of cycles"] == pytest.approx(shares["network-disk"])
    assert measured["F1: share of cycles"] == pytest.approx(shares["f1"])
    assert sum(shares.values()) == pytest.approx(1)


def test_errors_are_the_truth_s(study: Study, truth: Truth) -> None:
    measured = {each.what: each.measured for each in FIGURES["F23"].compute(study).comparisons}
    count, cycles = truth.error_shares()["CANCELLED"]
    assert measured["cancelled: share of errors"] == pytest.approx(count)
    assert measured["cancelled: share of the errors' cycles"] == pytest.approx(cycles)


def test_what_clusters_feel_shows_where_it_was_planted(study: Study, truth: Truth) -> None:
    rows = FIGURES["F17"].compute(study).tables["spearman"].to_pylist()
    rho = {row["variable"]: row["rho"] for row in rows if row["service"] == "network-disk"}
    assert truth.parameters()["rises_with"]["network-disk"] == ["cpu_util", "mem_bw", "long_wakeup_rate", "cpi"]
    assert all(rho[variable] > 0.1 for variable in rho), rho


# Faults, planted as a store in which what the fault would ignore is gone.
def _errors_included(calls: pa.Table) -> pa.Table:
    return _replaced(calls, "status", pa.array(["OK"] * calls.num_rows).dictionary_encode())


def _weights_ignored(calls: pa.Table) -> pa.Table:
    return _replaced(calls, "sample_weight", pa.array(np.ones(calls.num_rows)))


def _parents_lost(calls: pa.Table) -> pa.Table:
    """Of every fifth call."""
    fifth = pa.array(np.arange(calls.num_rows) % 5 == 0)
    return _replaced(calls, "parent_id", pc.if_else(fifth, pa.scalar(None, pa.int64()), calls["parent_id"]))


def _a_call_twice(calls: pa.Table) -> pa.Table:
    return pa.concat_tables([calls, calls.slice(0, 1)])


def _one_nanosecond(calls: pa.Table) -> pa.Table:
    return _replaced(calls, "total_ns", pc.add(calls["total_ns"], 1))


def _replaced(calls: pa.Table, name: str, values: pa.Array) -> pa.Table:
    field = calls.schema.field(name)
    return calls.set_column(calls.schema.get_field_index(name), field, values.cast(field.type))


@pytest.mark.parametrize(
    ("fault", "quantity"),
    [
        (_errors_included, "total"),
        (_weights_ignored, "total"),
        (_weights_ignored, "descendants"),
        (_parents_lost, "ancestors"),
        (_a_call_twice, "req_bytes"),
        (_one_nanosecond, "total"),
        (_one_nanosecond, "tax_ratio"),
    ],
)
def test_a_planted_fault_is_found(
    tmp_path: Path, small: tuple[Path, Truth], fault: Callable[[pa.Table], pa.Table], quantity: str
) -> None:
    folder, truth = small
    shutil.copytree(folder, tmp_path / "store")
    for file in Store.open(tmp_path / "store").files("span"):
        pq.write_table(fault(pq.read_table(file, partitioning=None)), file)
    assert _differences(_study(tmp_path / "store").quantiles(quantity), truth.quantiles(quantity)) != []


@pytest.mark.parametrize("quantity", ["total", "tax_ratio", "descendants", "ancestors", "req_bytes"])
def test_without_a_fault_there_is_none(small_study: Study, small: tuple[Path, Truth], quantity: str) -> None:
    assert _differences(small_study.quantiles(quantity), small[1].quantiles(quantity)) == []


def test_parents_counted_as_descendants_are_found(study: Study, truth: Truth) -> None:
    found = study.quantiles("descendants")
    shifted = found.set_column(found.schema.names.index("p50"), "p50", pc.add(found["p50"], 1))
    assert _differences(shifted, truth.quantiles("descendants")) != []


def test_figures_without_calls_name_what_is_missing(tmp_path: Path) -> None:
    generate(tmp_path / "store", FleetOptions(spans=1, methods=20, partitions=1, metrics=False, profiles=False))
    study = _study(tmp_path / "store")
    for number in ("F2", "F4", "F5", "F6", "F7", "F11", "F12", "F13", "F21"):
        made: Result = FIGURES[number].compute(study)
        assert made.coverage is Coverage.ABSENT
        assert made.missing
    assert FIGURES["F3"].compute(study).coverage is Coverage.PARTIAL


def test_a_figure_whose_input_half_of_the_methods_lack_is_partial(tmp_path: Path) -> None:
    generate(tmp_path / "store", FleetOptions(spans=20_000, methods=24, partitions=1, metrics=False))
    for file in Store.open(tmp_path / "store").files("span"):
        calls = pq.read_table(file, partitioning=None)
        odd = pc.equal(pc.bit_wise_and(calls["method_id"], 1), 1)
        nulls: Any = pa.nulls(calls.num_rows, pa.int64())
        pq.write_table(_replaced(calls, "request_wire_ns", pc.if_else(odd, nulls, calls["request_wire_ns"])), file)
    made = FIGURES["F12"].compute(_study(tmp_path / "store"))
    assert made.coverage is Coverage.PARTIAL
    assert "rpc.stage" in made.missing[0]
    assert "of 24 methods" in made.missing[0]
