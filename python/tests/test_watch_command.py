"""`scot study watch` as a process: how it ends, what a kill leaves, a disk that is full, a real Collector."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from watched import HOST, bytes_of, sdk_sends

from scotfree.study.cli import main
from scotfree.study.store import Store
from scotfree.study.watch.answers import PROTOBUF

COLLECTOR = Path(__file__).parent / "collector"
NEVER = "9999d"


@dataclass
class Running:
    """A process that receives."""

    process: subprocess.Popen[str]
    url: str
    page: str

    def ends(self, number: int) -> tuple[int, str]:
        """Its exit code after a signal, and what it said last."""
        self.process.send_signal(number)
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said


@contextmanager
def running(folder: Path, *flags: str) -> Iterator[Running]:
    """A watch of its own process."""
    addresses = ("--listen", f"{HOST}:0", "--serve", f"{HOST}:0")
    words = [sys.executable, "-m", "scotfree.study", "watch", *addresses, "--store", str(folder), *flags]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            first, second = process.stderr.readline(), process.stderr.readline()
            url, page = re.search(r"(http://\S+)/v1/traces into", first), re.search(r"at (http://\S+)/ ", second)
            assert url and page, first + second
            yield Running(process, url[1], page[1])
        finally:
            process.kill()


def post(url: str, body: bytes) -> int:
    """The status."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF})
    status = connection.getresponse().status
    connection.close()
    return status


def get(url: str) -> str:
    """The page."""
    connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
    connection.request("GET", "/")
    page = connection.getresponse().read().decode()
    connection.close()
    return page


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_end_writes_what_there_is(tmp_path: Path, number: int) -> None:
    with running(tmp_path / "live", "--every", NEVER) as watch:
        sdk_sends(watch.url, 600)
        code, said = watch.ends(number)
    assert code == 0
    assert re.fullmatch(
        r"scot study watch: ended: 600 spans received in \d requests?, .*; none refused; .*\n", said
    )
    assert Store.open(tmp_path / "live" / "store").manifest.spans == 600
    # Every other command reads it.
    words = ["report", str(tmp_path / "live" / "store"), "-o", str(tmp_path / "page.html")]
    assert main(words) == 0 and "cart" in (tmp_path / "page.html").read_text()


def test_what_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    with running(tmp_path / "live", "--every", NEVER) as watch:
        assert post(watch.url, bytes_of(70)) == 200
        watch.ends(signal.SIGKILL)
    with running(tmp_path / "live", "--every", NEVER) as watch:
        assert post(watch.url, bytes_of(30, first=100)) == 200
        assert watch.ends(signal.SIGTERM)[0] == 0
    assert Store.open(tmp_path / "live" / "store").manifest.spans == 100


def test_it_shows_what_came_without_being_asked(tmp_path: Path) -> None:
    with running(tmp_path / "live", "--every", "1s") as watch:
        assert post(watch.url, bytes_of(40)) == 200
        while ", 40 calls;" not in (page := get(watch.page)):
            assert "Nothing has come yet; 40 spans received" in page
        assert "cart" in page


def test_what_was_answered_and_removed_is_a_failure(tmp_path: Path) -> None:
    with running(tmp_path / "live", "--every", NEVER) as watch:
        assert post(watch.url, bytes_of(100)) == 200
        shutil.rmtree(tmp_path / "live")
        assert [post(watch.url, bytes_of(100, first=200)) for _ in range(3)] == [503] * 3
        code, said = watch.ends(signal.SIGTERM)
    assert code == 2 and "100 spans received in 1 request" in said and "3 the disk did not take it" in said
    assert re.search(r"scot study: keep what was answered: 100 spans in \S+/segments were removed; ", said)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount")
def test_a_full_disk_is_waited_for_and_the_store_stays(small_disk: Path) -> None:
    folder = small_disk / "live"
    with running(folder, "--every", "1s") as watch:
        assert post(watch.url, bytes_of(100)) == 200
        while ", 100 calls;" not in get(watch.page):
            pass
        filler = small_disk / "filler"
        with filler.open("wb") as file:
            while room := os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize:
                file.write(bytes(room))
                file.flush()
        assert post(watch.url, bytes_of(10_000, first=1000)) == 503
        assert Store.open(folder / "store").manifest.spans == 100
        assert ", 100 calls;" in get(watch.page)
        filler.unlink()
        assert post(watch.url, bytes_of(100, first=1000)) == 200
        while ", 200 calls;" not in (page := get(watch.page)):
            pass
        assert "the disk did not take it" in page
        code, said = watch.ends(signal.SIGTERM)
    assert code == 0 and said.count("a request is refused, the disk did not take it") == 1
    assert "the disk takes it again" in said and "ended: 200 spans received in 2 requests" in said


@pytest.fixture(scope="session")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OpenTelemetry's Collector with the parts of it that are used here; Go keeps what it compiled."""
    go = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if go is None:
        pytest.skip("the Collector is built with Go, and there is none")
    program = tmp_path_factory.mktemp("collector") / "collector"
    # Not another version of Go than the one that is there.
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    words = [go, "build", "-o", str(program), "."]
    try:
        made = subprocess.run(
            words, cwd=COLLECTOR, env=environment, capture_output=True, text=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired:
        pytest.skip("the Collector is not built after a quarter of an hour")
    if made.returncode != 0:
        pytest.skip(f"the Collector cannot be built: {made.stderr.strip().splitlines()[-1]}")
    return program


def free_port() -> int:
    """One that nobody listens on; a Collector does not say which one the system gave it."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        port: int = taken.getsockname()[1]
        return port


def test_a_collector_sends_on_what_it_receives(tmp_path: Path, collector: Path) -> None:
    with running(tmp_path / "live", "--every", NEVER) as watch, collecting(tmp_path, collector, watch.url) as url:
        sdk_sends(url, 900)
        sdk_sends(url, 300, service="shop", is_packed=True)
        while "1,200 spans received" not in (page := get(watch.page)):
            assert "none refused" in page
        assert watch.ends(signal.SIGTERM)[0] == 0
    assert Store.open(tmp_path / "live" / "store").manifest.spans == 1200


@contextmanager
def collecting(folder: Path, program: Path, to: str) -> Iterator[str]:
    """A Collector that sends on to a receiver, as soon as it listens."""
    port = free_port()
    config = folder / "collector.yaml"
    config.write_text(
        (COLLECTOR / "config.yaml").read_text().replace("RECEIVE", f"{HOST}:{port}").replace("SEND", to)
    )
    with subprocess.Popen([str(program), "--config", str(config)], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            said: list[Any] = []
            for line in process.stderr:
                said.append(line)
                if "Everything is ready" in line:
                    break
            assert said and "Everything is ready" in said[-1], "".join(said)
            yield f"http://{HOST}:{port}"
        finally:
            process.kill()
