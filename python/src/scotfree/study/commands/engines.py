"""The engine that the flags name, for as long as it is needed."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from scotfree.study.engine import Engine, spark_session
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.engine.spark import SparkEngine
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError

_UNITS = {"K": 10, "M": 20, "G": 30, "T": 40}


def check(flags: Namespace) -> None:
    """That the engine can be had, before data is read for minutes."""
    if flags.engine != "spark":
        if flags.spark_master is not None:
            raise StudyError(f"use Spark at {flags.spark_master}: the engine is duckdb", "add --engine spark")
        return
    if flags.spark_master is None:
        raise StudyError(
            "use Spark: no master is named", "add --spark-master spark://HOST:7077, or --spark-master 'local[2]'"
        )
    spark_session.check(flags.spark_master)


@contextmanager
def opened(flags: Namespace, store: Store) -> Iterator[Engine]:
    """The engine over a store; Spark's session ends with it."""
    if flags.engine == "duckdb":
        yield DuckEngine(store, memory=flags.memory, threads=flags.threads)
        return
    memory = {"spark.driver.memory": spark_memory(flags.memory)}
    with spark_session.running(flags.spark_master, **memory) as spark:
        yield SparkEngine(store, spark)


def chosen(flags: Namespace) -> list[str]:
    """The flags that were given, as one would write them again."""
    return [] if flags.engine == "duckdb" else ["--engine", flags.engine, "--spark-master", flags.spark_master]


def spark_memory(size: str) -> str:
    """A size such as 1.5GB as Spark takes it: whole mebibytes."""
    found = re.fullmatch(r"([0-9.]+) ?([KMGT]?)(i?)B", size, re.IGNORECASE)
    if found is None:
        raise AssertionError(f"{size} was taken for a size of memory")
    number, unit, binary = found.groups()
    power = _UNITS.get(unit.upper(), 0)
    size_bytes = float(number) * (2**power if binary else 10 ** (power * 3 // 10))
    return f"{max(1, int(size_bytes) >> 20)}m"
