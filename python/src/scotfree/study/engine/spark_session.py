"""A session of Spark: what must be there is looked at before one is started, and what was started is stopped."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from scotfree.study.trouble import StudyError

_CLUSTER: Final = re.compile(r"spark://[^:/,]+:\d{1,5}(,[^:/,]+:\d{1,5})*")
_LOCAL: Final = re.compile(r"local(\[(\d+|\*)\])?")
_ANSWER_MAX_S: Final = 5.0
# A worker starts a JVM before it takes a first task.
WORKERS_MAX_S: Final = 60.0
# How Python ends a traceback.
_CAUSE: Final = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|MISMATCH)\b\]?:? .*", re.MULTILINE)


def check(master: str) -> None:
    """That a session with this master may be had: a `StudyError` that says what is missing otherwise."""
    if not _CLUSTER.fullmatch(master) and not _LOCAL.fullmatch(master):
        raise StudyError(
            f"use Spark at {master}: that is no master", "name it as spark://HOST:7077, or local[2] for none"
        )
    _pyspark(master)
    _java(master)
    _own_name(master)
    if _CLUSTER.fullmatch(master):
        _reach(master)


@contextmanager
def running(master: str, **settings: str) -> Iterator[Any]:
    """A session for as long as it is needed; what fails on the cluster is a `StudyError`."""
    check(master)
    interrupt = signal.getsignal(signal.SIGINT)
    spark = _started(master, settings)
    try:
        with failures_told(master):
            if _CLUSTER.fullmatch(master):
                await_workers(spark, master)
            yield spark
    finally:
        # A cluster that is gone cannot be told.
        with suppress(Exception):
            spark.stop()
        # Spark's own would cancel jobs of a session that is no more.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)


def session(master: str, **settings: str) -> Any:
    """A session that its caller stops; `master` as Spark writes it: `spark://HOST:7077`, `local[2]`."""
    _pyspark(master)
    from pyspark.sql import SparkSession  # noqa: PLC0415, only who asks for Spark needs it

    builder = SparkSession.builder.master(master).appName("scotfree")
    defaults = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in {**defaults, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _pyspark(master: str) -> None:
    try:
        import pyspark.sql  # noqa: F401, PLC0415
    except ImportError as error:
        raise StudyError(f"use Spark at {master}: {error}", "install it: pip install 'scotfree[spark]'") from None


def _java(master: str) -> None:
    """As Spark's scripts look for it."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which(str(Path(home) / "bin" / "java") if home else "java") is None:
        where = f"none in JAVA_HOME, {home}" if home else "none on the path, and JAVA_HOME is not set"
        raise StudyError(
            f"use Spark at {master}: it needs Java, and there is {where}",
            "install Java 17 (openjdk-17-jre-headless), or use --engine duckdb",
        )


def _own_name(master: str) -> None:
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        raise StudyError(
            f"use Spark at {master}: it asks for localhost by name, which this machine does not know",
            "add it to /etc/hosts",
        ) from None


def _reach(master: str) -> None:
    """That one of the masters answers: Spark itself would try for minutes, and end in an error about metrics."""
    tried = []
    for address in master.removeprefix("spark://").split(","):
        host, port = address.rsplit(":", 1)
        try:
            socket.create_connection((host, int(port)), _ANSWER_MAX_S).close()
            return
        except (OSError, OverflowError) as error:
            tried.append(f"{address}: {error}")
    raise StudyError(
        f"reach Spark's master: {', '.join(tried)}",
        "start one (sbin/start-master.sh), or name another with --spark-master; local[2] needs none",
    )


def _started(master: str, settings: dict[str, str]) -> Any:
    if _LOCAL.fullmatch(master):
        # Spark takes any python3; only this one is known to have the kernels.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return session(master, **settings)
    except Exception as error:
        raise StudyError(
            f"start Spark at {master}: {_line(error)}",
            "what it printed above says more; it needs Java 17 or newer, and --memory of at least 500MB",
        ) from error


def await_workers(spark: Any, master: str) -> None:
    """That somebody takes a task: a cluster without free workers lets one wait for ever."""
    late = threading.Event()

    def cancel() -> None:
        late.set()
        spark.sparkContext.cancelAllJobs()

    timer = threading.Timer(WORKERS_MAX_S, cancel)
    timer.daemon = True
    timer.start()
    try:
        spark.range(1).count()
    except Exception:
        if not late.is_set():
            raise
        raise StudyError(
            f"count on {master}: none of its workers was free within {WORKERS_MAX_S:.0f} s",
            "start workers (sbin/start-worker.sh), wait for others to finish, or use local[2]",
        ) from None
    finally:
        timer.cancel()


@contextmanager
def failures_told(master: str) -> Iterator[None]:
    """What fails on the cluster is a `StudyError`; faults of our own are left alone."""
    try:
        yield
    except Exception as error:
        _tell(error, master)
        raise


def _tell(error: Exception, master: str) -> None:
    """Raises what failed on the cluster in the words of a user's next step."""
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import AnalysisException, PySparkException  # noqa: PLC0415

    if _is_interrupt(error):
        raise KeyboardInterrupt from error
    if isinstance(error, AnalysisException) or not isinstance(error, PySparkException | Py4JError):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise StudyError(
        f"count on {master}: {_line(error)}",
        f"each worker needs the store under the same path, Python {version} (PYSPARK_PYTHON names it) "
        "and this package in it; the workers' logs say more",
    ) from error


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether it only came after an interruption: to wait for a cancelled job fails, too."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


def _line(error: Exception) -> str:
    """The line that says most: the cause of a worker's traceback, else the first."""
    text = str(error)
    causes = _CAUSE.findall(text.split("\n\tat ", maxsplit=1)[0])
    return str(causes[-1] if causes else next(iter(text.splitlines()), type(error).__name__)).strip()
