"""The same answers from a cluster of Spark as from DuckDB, which tests/test_study.py compares with plain loops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import generated
import oracle
import pytest
import spark_cluster
import spoiled_fleet
from same_results import assert_same, assert_same_table
from spark_cluster import Cluster

from scotfree.study import schema
from scotfree.study.analysis import edges, path_times
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.cli import main
from scotfree.study.engine import spark_session
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.engine.spark import SparkEngine
from scotfree.study.engine.spark_session import session
from scotfree.study.figures import all_figures, findings, overview
from scotfree.study.figures.result import Figure
from scotfree.study.report import write
from scotfree.study.report.write import parquet_folder
from scotfree.study.store import INDEX, Store
from scotfree.study.trouble import StudyError

WHY_NOT = spark_cluster.why_not()
pytestmark = [pytest.mark.spark, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Two tasks at a time: more would only be started.
    "spark.sql.shuffle.partitions": "2",
    # Else two small partitions would become one, and no sum be one of parts.
    "spark.sql.adaptive.enabled": "false",
    # What fails here would fail again.
    "spark.task.maxFailures": "1",
    "spark.driver.extraJavaOptions": spark_cluster.QUICK_START,
    "spark.executor.extraJavaOptions": spark_cluster.QUICK_START,
}
TRACES = Path(__file__).parent / "fixtures" / "jaeger.json"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return generated.store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        with spark_cluster.cluster(tmp_path_factory.mktemp("cluster")) as running:
            yield running


@pytest.fixture(scope="module")
def spark(cluster: Cluster) -> Iterator[Any]:
    running = session(cluster.address, **SETTINGS)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def fleets(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Iterator[tuple[Study, Study]]:
    """A fleet on DuckDB and on Spark; the larger methods through histograms."""
    fleet = spoiled_fleet.store(tmp_path_factory.mktemp("fleet"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "EXACT_SAMPLES_MAX", 700)
        both = Study(fleet, DuckEngine(fleet)), Study(fleet, SparkEngine(fleet, spark))
        for study in both:
            assert 0 < study._per_method.is_large.sum() < study._per_method.methods.num_rows
        yield both


def test_work_is_done_by_two_workers(spark: Any) -> None:
    """Else what follows would say nothing of a cluster."""
    processes = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getppid()).distinct().collect()
    assert len(processes) == spark_cluster.WORKERS
    assert os.getpid() not in processes


@pytest.mark.parametrize("figure", all_figures(), ids=lambda figure: figure.number)
def test_a_figure_is_the_same(fleets: tuple[Study, Study], figure: Figure) -> None:
    ours, theirs = (figure.compute(study) for study in fleets)
    assert ours.tables
    assert_same(ours, theirs)


def test_methods_edges_and_what_is_said_of_them_are_the_same(fleets: tuple[Study, Study]) -> None:
    ours, theirs = fleets
    for of in (edges.methods, edges.edges):
        assert_same_table(of(ours), of(theirs))
    assert overview.groups(ours) == overview.groups(theirs)


def test_what_calls_wait_for_is_the_same(fleets: tuple[Study, Study]) -> None:
    ours, theirs = map(path_times.of_entries, fleets)
    assert_same_table(ours.methods, theirs.methods)
    assert_same_table(ours.stacks, theirs.stacks)


def test_exact_quantiles_are_the_oracle_s(store: Store, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "EXACT_SAMPLES_MAX", 10_000)
    found = Study(store, SparkEngine(store, spark)).quantiles("tax").to_pylist()
    taken = oracle.stages(["server_app"])
    expected = oracle.samples(
        oracle.rows(store),
        lambda row: None if None in (row["total_ns"], taken(row)) else row["total_ns"] - taken(row),
    )
    assert len(found) == len(expected)
    for row in found:
        for p in schema.QUANTILES:
            assert row[column(p)] == oracle.nearest_rank(*expected[row["method_id"]], p)


def test_counts_agree(store: Store, spark: Any) -> None:
    assert_same_table(
        *(Study(store, engine).counts() for engine in (DuckEngine(store), SparkEngine(store, spark)))
    )


def test_what_a_worker_cannot_do_is_told(store: Store, spark: Any) -> None:
    def fails(_: Any) -> Any:
        raise ModuleNotFoundError("No module named 'scotfree'")

    with (
        pytest.raises(
            StudyError, match="No module named 'scotfree'; each worker needs the store under the same path"
        ),
        spark_session.failures_told("spark://head:7077"),
    ):
        SparkEngine(store, spark).map_partitions(["method_id"], fails, schema.METHOD)


def test_an_interrupted_report_ends_its_session(cluster: Cluster, spark: Any, tmp_path: Path) -> None:
    """It waits for workers, since the other session has them all."""
    words = [
        "--quiet",
        "-o",
        str(tmp_path / "report.html"),
        "--engine",
        "spark",
        "--spark-master",
        cluster.address,
    ]
    command = [sys.executable, "-m", "scotfree.study", "report", str(TRACES), *words]
    others = {app["id"] for app in cluster.state()["activeapps"]}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as report:
        spark_cluster.wait_for(lambda: len(cluster.state()["activeapps"]) > len(others), "session of the report")
        report.send_signal(signal.SIGINT)
        _, said = report.communicate()
    assert report.returncode == 130, said
    assert "interrupted" in said
    spark_cluster.wait_for(lambda: {app["id"] for app in cluster.state()["activeapps"]} == others, "end of it")
    assert [app["state"] for app in cluster.state()["completedapps"]] == ["FINISHED"]


# The last one: the report ends the session that the others have.
def test_a_report_says_its_engine_and_ends_the_session(
    cluster: Cluster, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [figure for figure in all_figures() if figure.number in ("F2", "S2.1")]
    monkeypatch.setattr(write, "all_figures", lambda: asked)
    monkeypatch.setattr(findings, "top", lambda *_: [])
    page = tmp_path / "report.html"
    words = ["--engine", "spark", "--spark-master", cluster.address]
    assert main(["report", str(TRACES), "--quiet", "-o", str(page), *words]) == 0
    assert "engine spark" in page.read_text()
    assert json.loads((parquet_folder(page) / INDEX).read_text())["engine"] == "spark"
    assert spark.sparkContext._jsc is None
