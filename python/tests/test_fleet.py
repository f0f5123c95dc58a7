"""The fleet itself: what holds of its calls by construction, and that both forms of writing it say the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from scotfree.study import schema
from scotfree.study.cli import main
from scotfree.study.fleet import FleetOptions, Truth, generate, metrics, otlp, write
from scotfree.study.fleet.population import BYTES_MIN
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.run import ingest
from scotfree.study.store import Store, partitions_of, trace_words
from scotfree.study.trouble import StudyError

SMALL = FleetOptions(spans=6_000, methods=30, clusters=4, partitions=4, metrics=False, profiles=False)
LARGE = FleetOptions(spans=120_000, methods=30, clusters=4, seed=5, sampling=False)


def _changed(options: FleetOptions, **changes: object) -> FleetOptions:
    return FleetOptions(**{**vars(options), **changes})


def _calls(folder: Path) -> pa.Table:
    """All calls without their order; plain, as dictionaries of files differ."""
    files = [pq.read_table(file, partitioning=None) for file in Store.open(folder).files("span")]
    plain = [pa.table({name: _plain(table[name]) for name in table.column_names}) for table in files]
    return pa.concat_tables(plain).sort_by("span_id")


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


@pytest.fixture(scope="module")
def large() -> Truth:
    return Truth(write.plan(LARGE))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    folder = tmp_path_factory.mktemp("fleet") / "store"
    generate(folder, SMALL)
    return _calls(folder)


def test_calls_do_not_depend_on_the_number_of_partitions(tmp_path: Path, small: pa.Table) -> None:
    generate(tmp_path / "16", _changed(SMALL, partitions=16))
    generate(tmp_path / "other", _changed(SMALL, seed=2))
    assert _calls(tmp_path / "16").equals(small)
    assert not _calls(tmp_path / "other").equals(small)


def test_each_trace_is_in_its_partition(tmp_path: Path) -> None:
    generate(tmp_path / "store", SMALL)
    for index, folder in enumerate(Store.open(tmp_path / "store").partitions()):
        ids = pq.read_table(folder, columns=["trace_id"], partitioning=None)["trace_id"].combine_chunks()
        assert len(ids) > 0
        assert (partitions_of(trace_words(ids), SMALL.partitions) == index).all()


def test_stages_add_up(large: Truth) -> None:
    columns = large.columns
    assert (large.sum_of(schema.STAGES) == columns["total_ns"]).all()
    sides = columns["request_side_ns"] + columns["server_app_ns"] + columns["response_side_ns"]
    assert (sides == columns["total_ns"]).all()


@pytest.mark.parametrize("depth", [2, 20])
def test_trees_are_as_deep_as_asked_and_wider(depth: int) -> None:
    columns = Truth(write.plan(_changed(LARGE, spans=30_000, depth=depth))).columns
    assert columns["level"].max() == depth - 1
    sizes = 1 + columns["descendants"][columns["level"] == 0]
    assert np.quantile(sizes, 0.99) > 10 * depth


def test_a_call_runs_while_its_callers_application_does(large: Truth) -> None:
    columns = large.columns
    began = columns["start_ns"] - large.fleet.population.clock_ns[columns["client_machine"]]
    app = began + np.sum([columns[name] for name in schema.STAGE_COLUMNS[: schema.APP]], axis=0)
    order = np.argsort(columns["span_id"])
    child = np.flatnonzero((columns["level"] > 0) & ~columns["is_hedge"])
    parent = order[np.searchsorted(columns["span_id"][order], columns["parent_id"][child])]
    assert (columns["span_id"][parent] == columns["parent_id"][child]).all()
    assert (columns["trace"][parent] == columns["trace"][child]).all()
    assert (began[child] >= app[parent]).all()
    assert (began[child] + columns["total_ns"][child] <= (app + columns["server_app_ns"])[parent]).all()
    assert (columns["server_cluster"][parent] == columns["client_cluster"][child]).all()


def test_a_stage_has_the_distribution_that_it_was_given(large: Truth) -> None:
    method = large.methods.index(("kv-store", "Get"))
    stage = schema.STAGES.index("response_stack")
    values = np.log(large.columns["response_stack_ns"][large.columns["method_id"] == method])
    who = large.fleet.population
    assert len(values) > 2_000
    assert np.median(values) == pytest.approx(who.stage_mu[method, stage], abs=0.1)
    deviation = np.quantile(values, 0.8413) - np.median(values)
    assert deviation == pytest.approx(who.stage_sigma[method, stage], rel=0.1)


def test_errors_have_the_paper_s_shares(large: Truth) -> None:
    failed = 1 - large.is_good.mean()
    shares = large.error_shares()
    assert failed == pytest.approx(0.019, abs=0.002)
    assert shares["CANCELLED"][0] == pytest.approx(0.45, abs=0.04)
    assert shares["NOT_FOUND"][0] == pytest.approx(0.20, abs=0.03)
    hedges = large.columns["is_hedge"]
    assert hedges.sum() > 10
    assert not large.is_good[hedges].any()


def test_sizes_and_popularity(large: Truth) -> None:
    assert large.columns["req_bytes"].min() >= BYTES_MIN
    calls = large.calls()
    assert large.methods[int(np.argmax(calls))] == ("network-disk", "Write")
    drawn = np.bincount(large.columns["method_id"], minlength=len(large.methods))
    assert (drawn > 0).all()


def test_weights_come_with_sampling_only(large: Truth) -> None:
    assert set(large.columns["sample_weight"]) == {1.0}
    sampled = Truth(write.plan(SMALL)).columns
    assert set(sampled["sample_weight"]) == {1.0, 2.0, 10.0}
    per_trace: dict[int, set[float]] = {trace: set() for trace in sampled["trace"].tolist()}
    for trace, weight in zip(sampled["trace"].tolist(), sampled["sample_weight"].tolist(), strict=True):
        per_trace[trace].add(weight)
    assert {len(weights) for weights in per_trace.values()} == {1}


def test_far_calls_take_the_way(large: Truth) -> None:
    columns = large.columns
    way = large.fleet.population.rtt_ns[columns["client_cluster"], columns["server_cluster"]]
    far = way > 10e6
    assert 0 < far.mean() < 0.2
    assert (large.sum_of(schema.WIRES)[far] >= way[far] * 0.999).all()


def test_every_series_is_there_and_requests_per_cycle_grow(large: Truth) -> None:
    table = pa.concat_tables(metrics.tables(1, large.fleet.population)).unify_dictionaries()
    assert set(pc.unique(table["series"].cast(pa.string())).to_pylist()) == set(schema.METRIC_SERIES)
    daily = {
        name: table.filter(pc.equal(table["series"].cast(pa.string()), name)) for name in ("rps", "cpu_cycles")
    }
    days = sorted(pc.unique(daily["rps"]["ts_ns"]).to_pylist())
    ratio = [
        pc.sum(daily["rps"].filter(pc.equal(daily["rps"]["ts_ns"], day))["value"]).as_py()
        / pc.sum(daily["cpu_cycles"].filter(pc.equal(daily["cpu_cycles"]["ts_ns"], day))["value"]).as_py()
        for day in (days[0], days[-1])
    ]
    assert ratio[1] / ratio[0] == pytest.approx(metrics.GROWTH, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "named"),
    [({"partitions": 5}, "divides 64"), ({"spans": 0}, "at least 1"), ({"depth": 21}, "2 to 20")],
)
def test_what_cannot_be_made_is_refused(changes: dict[str, int], named: str) -> None:
    with pytest.raises(StudyError, match=named):
        _changed(SMALL, **changes)


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(StudyError, match="name a new folder"):
        generate(tmp_path, SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_otlp_says_the_same_as_the_store(tmp_path: Path, small: pa.Table) -> None:
    otlp.write(tmp_path / "otlp", write.plan(SMALL))
    ingest([tmp_path / "otlp"], tmp_path / "store", Options(quiet=True))
    found = _calls(tmp_path / "store")
    assert found.num_rows == small.num_rows
    # A root's client is outside the fleet, here by name; offsets of clocks are estimates of the ingest's.
    for name in sorted(set(schema.SPAN.names) - {"client_service", "clock_bound_ns", "is_hedge"}):
        assert found[name].equals(small[name].cast(found[name].type)), name


def test_otlp_without_stages_still_gives_the_tax(tmp_path: Path, small: pa.Table) -> None:
    otlp.write(tmp_path / "otlp", write.plan(SMALL), stages=False)
    ingest([tmp_path / "otlp"], tmp_path / "store", Options(quiet=True))
    found = _calls(tmp_path / "store")
    for name in ("total_ns", "server_app_ns", "parent_id", "server_machine"):
        assert found[name].equals(small[name].cast(found[name].type)), name
    assert found["client_send_queue_ns"].null_count == found.num_rows


def test_the_command_writes_store_and_truth(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["fleet", "--spans", "3000", "--methods", "24", "--clusters", "4", "--to", str(tmp_path / "store")]
    assert main([*arguments, "--truth", str(tmp_path / "truth")]) == 0
    assert "24 methods" in capsys.readouterr().out
    assert Store.open(tmp_path / "store").manifest.spans >= 3_000
    parameters = json.loads((tmp_path / "truth" / "parameters.json").read_text())
    assert parameters["dominant_stage"]["ssd-cache"] == "server_recv_queue"
    quantiles = pq.read_table(tmp_path / "truth" / "quantiles.parquet")
    assert {"total", "descendants"} <= set(quantiles["quantity"].to_pylist())
