"""The flags that choose an engine: what Spark lacks is told in one line, before anything is read or written."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scotfree.study.cli import main
from scotfree.study.commands.engines import spark_memory
from scotfree.study.engine import spark_session
from scotfree.study.trouble import StudyError

TRACES = Path(__file__).parent / "fixtures" / "jaeger.json"
Prepare = Callable[[pytest.MonkeyPatch, Path], list[str]]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


def _java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A Java, wherever the tests run; it is never started."""
    (folder / "bin").mkdir()
    java = folder / "bin" / "java"
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


def _no_pyspark(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    return ["--engine", "spark", "--spark-master", "local[2]"]


def _no_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(folder))
    return ["--engine", "spark", "--spark-master", "local[2]"]


def _java_that_moved(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    monkeypatch.setenv("JAVA_HOME", str(folder / "gone"))
    return ["--engine", "spark", "--spark-master", "local[2]"]


def _no_localhost(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    def unknown(*_: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    _java(monkeypatch, folder)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    return ["--engine", "spark", "--spark-master", "local[2]"]


def _no_master(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    return ["--engine", "spark"]


def _a_master_without_a_port(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    return ["--engine", "spark", "--spark-master", "spark://head"]


def _a_master_for_duckdb(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[str]:
    return ["--spark-master", "local[2]"]


REFUSED: dict[str, tuple[Prepare, str]] = {
    "Spark is not installed": (_no_pyspark, "install it: pip install 'scotfree[spark]'"),
    "no Java": (_no_java, "there is none on the path, and JAVA_HOME is not set; install Java 17"),
    "a Java that moved": (_java_that_moved, "none in JAVA_HOME"),
    "no localhost": (_no_localhost, "add it to /etc/hosts"),
    "no master": (_no_master, "no master is named; add --spark-master"),
    "a master without a port": (_a_master_without_a_port, "that is no master"),
    "a master for DuckDB": (_a_master_for_duckdb, "the engine is duckdb; add --engine spark"),
}


def refused(folder: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """What is said, once it is sure that nothing was done."""
    before = sorted(folder.rglob("*"))
    assert main(["report", str(TRACES), "-o", str(folder / "report.html"), *words]) == 2
    said = capsys.readouterr().err
    assert said.startswith("scot study: ")
    assert len(said.splitlines()) == 1
    assert sorted(folder.rglob("*")) == before
    return said


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_missing_is_told_before_data_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    prepare, why = REFUSED[case]
    assert why in refused(tmp_path, capsys, prepare(monkeypatch, tmp_path))


def test_a_master_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _java(monkeypatch, tmp_path)
    with closed_port() as port, closed_port() as other:
        addresses = f"127.0.0.1:{port}", f"127.0.0.1:{other}"
        words = ["--engine", "spark", "--spark-master", f"spark://{addresses[0]},{addresses[1]}"]
        said = refused(tmp_path, capsys, words)
    assert all(address in said for address in addresses)
    assert "start one (sbin/start-master.sh)" in said


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2]", "spark://a:7077", "spark://a:7077,b:7077"])
def test_a_master_is_taken(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    for part in ("_pyspark", "_java", "_own_name", "_reach"):
        monkeypatch.setattr(spark_session, part, lambda _: None)
    spark_session.check(master)


@pytest.mark.parametrize(
    ("given", "spark_s"),
    [("2GB", "1907m"), ("2GiB", "2048m"), ("1.5 GB", "1430m"), ("700mb", "667m"), ("64B", "1m")],
)
def test_memory_is_said_as_spark_takes_it(given: str, spark_s: str) -> None:
    assert spark_memory(given) == spark_s


class Busy:
    """A session of a cluster without a free worker: a job ends when it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self.sparkContext = self

    def range(self, _: int) -> Busy:
        return self

    def count(self) -> int:
        assert self._cancelled.wait(60)
        raise RuntimeError("Job 0 cancelled")

    def cancelAllJobs(self) -> None:
        self._cancelled.set()


def test_a_cluster_without_free_workers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "WORKERS_MAX_S", 0.01)
    with pytest.raises(StudyError, match="none of its workers was free within 0 s; start workers"):
        spark_session.await_workers(Busy(), "spark://head:7077")
