"""The aggregates against the same by plain loops (tests/oracle.py), on a store with weights, nulls and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import generated
import numpy as np
import oracle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scotfree.study import schema
from scotfree.study.analysis import per_method, ranks
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError

ORACLES: dict[str, Any] = {
    "total": lambda row: row["total_ns"],
    "tax": lambda row: _less(row["total_ns"], row["server_app_ns"]),
    "tax_ratio": lambda row: _over(_less(row["total_ns"], row["server_app_ns"]), row["total_ns"]),
    "queue": oracle.stages(schema.QUEUES),
    "network": oracle.stages([*schema.WIRES, *schema.STACKS]),
    "size_ratio": lambda row: _over(row["resp_bytes"], row["req_bytes"]),
    "cpu_cycles": lambda row: row["cpu_cycles"],
    "response_wire": oracle.stages(["response_wire"]),
    "server_app+server_send_queue": oracle.stages(["server_app", "server_send_queue"]),
}
SETS = [["server_app"], ["response_wire", "request_wire"]]


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _over(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return generated.store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def calls(store: Store) -> list[oracle.Row]:
    return oracle.rows(store)


@pytest.fixture(scope="module")
def study(store: Store) -> Study:
    return Study(store, DuckEngine(store))


@pytest.mark.parametrize("quantity", ORACLES)
def test_quantiles_are_the_nearest_rank_s(study: Study, calls: list[oracle.Row], quantity: str) -> None:
    expected = oracle.samples(calls, ORACLES[quantity])
    found = study.quantiles(quantity).to_pylist()
    assert len(found) == len(expected) > 3
    for row in found:
        values, weights = expected[row["method_id"]]
        assert row["samples"] == len(values)
        assert row["weight"] == pytest.approx(sum(weights), rel=1e-12)
        assert row["effective_n"] == pytest.approx(sum(weights) ** 2 / sum(w * w for w in weights), rel=1e-12)
        for p in schema.QUANTILES:
            assert row[column(p)] == pytest.approx(oracle.nearest_rank(values, weights, p), rel=1e-12)
    assert [row["p50"] for row in found] == sorted(row["p50"] for row in found)


@pytest.mark.parametrize("which", [0, 1])
def test_places_in_trees_are_those_found_by_walking_up(study: Study, calls: list[oracle.Row], which: int) -> None:
    places = oracle.places(calls)
    found = study.quantiles(("descendants", "ancestors")[which]).to_pylist()
    assert found
    for row in found:
        mine = [at for at, call in enumerate(calls) if call["method_id"] == row["method_id"]]
        values, weights = [places[at][which] for at in mine], [oracle.weight(calls[at]) for at in mine]
        for p in schema.QUANTILES:
            assert row[column(p)] == oracle.nearest_rank(values, weights, p)


@pytest.mark.parametrize("names", SETS)
def test_what_if_counts_who_leaves_the_tail(study: Study, calls: list[oracle.Row], names: list[str]) -> None:
    expected = oracle.what_if(calls, names)
    found = {row["method_id"]: row for row in study.what_if([names]).to_pylist()}
    fleet = found.pop(None)
    assert found.keys() == expected.keys()
    for method, (tail, leaves) in expected.items():
        assert found[method]["tail"] == pytest.approx(tail, rel=1e-12)
        assert found[method]["leaves"] == pytest.approx(leaves / tail, rel=1e-12)
    shares = [leaves for _, leaves in expected.values()], [tail for tail, _ in expected.values()]
    assert fleet["leaves"] == pytest.approx(sum(shares[0]) / sum(shares[1]), rel=1e-12)
    assert 0 <= fleet["leaves_low"] < fleet["leaves"] < fleet["leaves_high"] <= 1


def test_sums_of_a_method_are_those_of_its_calls(study: Study, calls: list[oracle.Row]) -> None:
    for row in study.counts().to_pylist():
        mine = [call for call in calls if call["method_id"] == row["method_id"]]
        good = [call for call in mine if call["status"] == schema.STATUS_OK]
        known = [call for call in good if call["response_wire_ns"] is not None]
        whole = [call for call in good if None not in [call[name] for name in ("total_ns", *schema.STAGE_COLUMNS)]]
        assert row["calls"] == len(mine)
        assert row["errors"] == len(mine) - len(good) > 0
        assert row["known_response_wire"] == len(known)
        expected = sum(oracle.weight(call) * call["response_wire_ns"] for call in known)
        assert row["sum_response_wire_ns"] == pytest.approx(expected, rel=1e-12)
        assert row["complete"] == len(whole) > 0
        expected = sum(oracle.weight(call) * call["total_ns"] for call in whole)
        assert row["complete_total_ns"] == pytest.approx(expected, rel=1e-12)


def test_the_tail_is_what_takes_the_p95_of_its_method_or_longer(study: Study, calls: list[oracle.Row]) -> None:
    totals = oracle.samples(calls, lambda row: row["total_ns"])
    bounds = {method: oracle.nearest_rank(*each, 0.95) for method, each in totals.items()}
    expected = sum(value >= bounds[method] for method, (values, _) in totals.items() for value in values)
    tail = study.tail()
    assert study.engine.arrow(tail.count().name("calls").as_table())["calls"].to_pylist() == [expected]


def test_an_unknown_quantity_is_named(study: Study) -> None:
    with pytest.raises(StudyError, match="no quantity or stage lunch"):
        study.quantiles("server_app+lunch")


@pytest.mark.parametrize("names", SETS)
def test_percentiles_without_stages_are_those_of_what_is_left(
    study: Study, calls: list[oracle.Row], names: list[str]
) -> None:
    taken = oracle.stages(names)
    medians = {method: oracle.nearest_rank(*each, 0.5) for method, each in oracle.samples(calls, taken).items()}
    left = oracle.samples(calls, lambda row: _less(row["total_ns"], taken(row)))
    found = study.removed([names]).to_pylist()
    assert len(found) == len(left)
    for row in found:
        for p in (0.5, 0.95, 0.99):
            expected = oracle.nearest_rank(*left[row["method_id"]], p) + medians[row["method_id"]]
            assert row[column(p)] == expected
            assert row[f"{column(p)}_low"] <= expected <= row[f"{column(p)}_high"]
    assert any(row["p50_low"] < row["p50"] < row["p50_high"] for row in found)


@pytest.fixture(scope="module")
def sketched(store: Store) -> Study:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "EXACT_SAMPLES_MAX", 700)
        study = Study(store, DuckEngine(store))
        assert 0 < study._per_method.is_large.sum() < len(study._per_method.is_large)
    return study


class TestMethodsOfManyCalls:
    """With the limit of exact samples low, so that the large methods go through histograms."""

    @pytest.mark.parametrize("quantity", [*ORACLES, "ancestors"])
    def test_quantiles_are_within_one_percent(self, study: Study, sketched: Study, quantity: str) -> None:
        exact = {row["method_id"]: row for row in study.quantiles(quantity).to_pylist()}
        found = sketched.quantiles(quantity).to_pylist()
        assert {row["is_exact"] for row in found} == {True, False}
        assert len(found) == len(exact)
        for row in found:
            expected = exact[row["method_id"]]
            # Of methods of few calls the same; of those of many within the bins' width, and nothing else differs.
            allowed = 0.0 if row["is_exact"] else schema.SKETCH_ERROR
            for p in map(column, schema.QUANTILES):
                assert row[p] == pytest.approx(expected[p], rel=allowed, abs=0)
            for name in ("samples", "weight", "effective_n"):
                assert row[name] == pytest.approx(expected[name], rel=1e-12)
        assert any(row["p50"] != exact[row["method_id"]]["p50"] for row in found)

    def test_where_tails_begin_is_exact(self, study: Study, sketched: Study) -> None:
        expected = {row["method_id"]: row["bound_ns"] for row in study.bounds().to_pylist()}
        assert {row["method_id"]: row["bound_ns"] for row in sketched.bounds().to_pylist()} == expected

    def test_what_if_is_the_same_but_for_the_medians(self, study: Study, sketched: Study) -> None:
        exact, found = (each.what_if([["server_app"]]).to_pylist() for each in (study, sketched))
        for row, expected in zip(found, exact, strict=True):
            assert row["tail"] == expected["tail"]
            assert row["leaves"] == pytest.approx(expected["leaves"], abs=0.03)

    def test_percentiles_without_stages_are_within_one_percent(self, study: Study, sketched: Study) -> None:
        exact, found = (each.removed([["server_app"]]).to_pylist() for each in (study, sketched))
        for row, expected in zip(found, exact, strict=True):
            for name in ("p50", "p95", "p99"):
                assert row[name] == pytest.approx(expected[name], rel=schema.SKETCH_ERROR)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_what_is_sorted_here_is_as_by_window_sums(tmp_path: Path, is_weighted: bool) -> None:
    calls = generated.store(tmp_path, 3_000, is_weighted=is_weighted)
    here, elsewhere = Study(calls, DuckEngine(calls)), Study(calls, _Elsewhere(calls))
    for quantity in ("total", "size_ratio", "descendants"):
        found, expected = (study.quantiles(quantity).to_pydict() for study in (here, elsewhere))
        assert found.keys() == expected.keys()
        for name, values in found.items():
            assert values == (pytest.approx(expected[name], rel=1e-12) if name in _SUMS else expected[name]), name
    asked = [["server_app"]]
    assert here.removed(asked).equals(elsewhere.removed(asked))


def test_many_calls_of_small_methods_are_looked_at_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = generated.store(tmp_path, 3_000)
    whole = Study(calls, DuckEngine(calls)).quantiles("total")
    monkeypatch.setattr(per_method, "_CALLS_AT_ONCE", 500)
    assert Study(calls, DuckEngine(calls)).quantiles("total").equals(whole)


_SUMS = ("weight", "effective_n")


class _Elsewhere(DuckEngine):
    is_local = False


@given(count=st.integers(1, 1_200))
@settings(deadline=None, max_examples=12)
def test_ranks_are_the_ceiling_of_p_n(count: int) -> None:
    rows = pa.table({"method_id": pa.array([0] * count, pa.int32()), "value": range(1, count + 1)})
    ps = {column(p / 100): np.array([p / 100]) for p in range(1, 100)}
    found = ranks.nearest_rank(rows.append_column("weight", pa.array(np.ones(count))), ps).to_pylist()[0]
    assert [found[name] for name in ps] == [-(-p * count // 100) for p in range(1, 100)]
