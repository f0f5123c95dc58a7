"""The same answers from a cluster of Spark as from DuckDB, which tests/test_study.py compares with plain loops."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import generated
import oracle
import pyarrow as pa
import pytest
import spark_cluster

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.engine.spark import SparkEngine
from scotfree.study.engine.spark_session import session
from scotfree.study.store import Store

WHY_NOT = spark_cluster.why_not()
pytestmark = [pytest.mark.spark, pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")]
SETTINGS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": spark_cluster.QUICK_START,
    "spark.executor.extraJavaOptions": spark_cluster.QUICK_START,
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return generated.store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    with spark_cluster.cluster(tmp_path_factory.mktemp("cluster")) as address:
        running = session(address, **SETTINGS)
        yield running
        running.stop()


@pytest.fixture(scope="module")
def studies(store: Store, spark: Any) -> tuple[Study, Study]:
    """On DuckDB and on Spark; the larger methods through histograms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "EXACT_SAMPLES_MAX", 700)
        both = Study(store, DuckEngine(store)), Study(store, SparkEngine(store, spark))
        for study in both:
            assert study._per_method.is_large.any()
    return both


def test_work_is_done_by_two_workers(spark: Any) -> None:
    """Else what follows would say nothing of a cluster."""
    processes = spark.sparkContext.parallelize(range(8), 8).map(lambda _: os.getppid()).distinct().collect()
    assert len(processes) == spark_cluster.WORKERS
    assert os.getpid() not in processes


@pytest.mark.parametrize("quantity", ["size_ratio", "descendants"])
def test_quantiles_agree(studies: tuple[Study, Study], quantity: str) -> None:
    assert_same(*(study.quantiles(quantity) for study in studies))


def test_exact_quantiles_are_the_oracle_s(store: Store, spark: Any) -> None:
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


def test_counts_agree(studies: tuple[Study, Study]) -> None:
    assert_same(*(study.counts() for study in studies))


def test_what_if_and_percentiles_without_stages_agree(studies: tuple[Study, Study]) -> None:
    wires = [["request_wire", "response_wire"]]
    assert_same(*(study.what_if(wires) for study in studies))
    assert_same(*(study.removed(wires) for study in studies))


def assert_same(left: pa.Table, right: pa.Table) -> None:
    """Row by row; numbers within 1e-12."""
    assert left.schema.names == right.schema.names
    assert left.num_rows == right.num_rows > 0
    for name in left.schema.names:
        ours, theirs = left[name].to_pylist(), right[name].to_pylist()
        if pa.types.is_floating(left.schema.field(name).type):
            assert [None if value is None else pytest.approx(value, rel=1e-12) for value in ours] == theirs, name
        else:
            assert ours == theirs, name
