"""A standalone cluster of Spark on this host's loopback: a master and two workers, each a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
# These processes live for seconds: the second compiler would work longer than they do.
QUICK_START = "-XX:TieredStopAtLevel=1"
WORKERS = 2
_HOST = "127.0.0.1"
_PATIENCE_S = 180
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_PAGE = re.compile(r"MasterWebUI.* started at http://[^:]+:(\d+)")


def why_not() -> str | None:
    """Why no cluster can be started here; None if one can."""
    if shutil.which("java") is None:
        return "there is no java on the path"
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError as error:
        return str(error)
    try:
        socket.getaddrinfo("localhost", None)
    except OSError:
        return "pyspark asks for localhost by name, which this machine does not know: add it to /etc/hosts"
    return None


@dataclass(frozen=True)
class Cluster:
    """A master's address, and its page for programs."""

    address: str
    page: str

    def state(self) -> dict[str, Any]:
        """What the master says of itself: `aliveworkers`, `activeapps`, `completedapps`."""
        with urllib.request.urlopen(self.page, timeout=_PATIENCE_S) as answer:
            found: dict[str, Any] = json.load(answer)
            return found


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """Runs it."""
    with ExitStack() as running:
        master = running.enter_context(_daemon(folder, "master", "--port", "0", "--webui-port", "0"))
        found = _await_master(folder / "master.log", master)
        for number in range(WORKERS):
            of_it = (
                "--webui-port",
                "0",
                "--cores",
                "1",
                "--memory",
                "1g",
                "--work-dir",
                str(folder / f"w{number}"),
            )
            running.enter_context(_daemon(folder, f"worker{number}", *of_it, found.address))
        wait_for(lambda: found.state()["aliveworkers"] == WORKERS, f"{WORKERS} workers at {found.page}")
        yield found


@contextmanager
def _daemon(folder: Path, name: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    import pyspark  # noqa: PLC0415

    home = Path(pyspark.__file__).parent
    kind = "master.Master" if name == "master" else "worker.Worker"
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}", "--host", _HOST, *arguments]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=_environment(home))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(_PATIENCE_S)


def _environment(home: Path) -> dict[str, str]:
    small = {
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": QUICK_START,
        "SPARK_LOCAL_IP": _HOST,
        "PYSPARK_PYTHON": sys.executable,
    }
    return {**os.environ, **small, "SPARK_HOME": str(home), "SPARK_NO_DAEMONIZE": "1"}


def _await_master(log: Path, process: subprocess.Popen[bytes]) -> Cluster:
    def addresses() -> Cluster | None:
        assert process.poll() is None, log.read_text()
        started, page = _STARTED.search(log.read_text()), _PAGE.search(log.read_text())
        return Cluster(started[1], f"http://{_HOST}:{page[1]}/json/") if started and page else None

    found = wait_for(addresses, f"a master in {log}")
    assert found is not None
    return found


def wait_for(condition: Callable[[], T], what: str) -> T:
    """What the condition gives as soon as it is something; fails if that takes too long."""
    until = time.monotonic() + _PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < until, f"no {what} within {_PATIENCE_S} s"
        threading.Event().wait(0.05)
    return found
