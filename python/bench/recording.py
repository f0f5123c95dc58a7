"""Records our own services under load with perf, for some seconds, on loopback.

A Redis behind both sidecars and the embedded store behind one, each asked by redis-benchmark. What is missing on
the machine is named with what to do about it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scotfree.study.trouble import StudyError

Process = subprocess.Popen[str]

_EVENT = ["-e", "cpu-clock", "-F", "499", "-g"]
# More than are asked for in any recording.
_REQUESTS = 100_000_000
_STOP_SECONDS = 10


def tool(name: str) -> str:
    """The path of a program."""
    found = shutil.which(name)
    if found is None:
        raise StudyError(f"run {name}: it is not installed", "Debian: apt-get install linux-perf redis golang")
    return found


def scot() -> Path:
    """The built command of this tree, or SCOTFREE_PROGRAM, or the installed one."""
    given = os.environ.get("SCOTFREE_PROGRAM")
    root = Path(__file__).parents[2]
    here = root / os.environ.get("CARGO_TARGET_DIR", "target") / "release" / "scot"
    installed = shutil.which("scot")
    for path in (given, here, installed):
        if path is not None and Path(path).is_file():
            return Path(path)
    raise StudyError("run scot: it is not built", "cargo build --release -p scotfree-cli, or set SCOTFREE_PROGRAM")


def record_services(folder: Path, seconds: int) -> Path:
    """The services under load for some seconds; a file of perf."""
    with ExitStack() as stack:
        served, fronts = _services(folder, stack)
        for port in fronts:
            stack.enter_context(_load(port))
        return record(folder, ["-p", ",".join(str(process.pid) for process in served)], seconds)


def record(folder: Path, target: list[str], seconds: int) -> Path:
    """What perf records of processes in so many seconds."""
    output = folder / "perf.data"
    command = [tool("perf"), "record", *_EVENT, "-o", str(output), *target, "--", "sleep", str(seconds)]
    _run_perf(command)
    return output


def record_program(folder: Path, command: list[str]) -> Path:
    """What perf records of a program from its start to its end."""
    output = folder / "perf.data"
    _run_perf([tool("perf"), "record", *_EVENT, "-o", str(output), "--", *command])
    return output


def script(recording: Path) -> Path:
    """The recording as the text of `perf script`, process and thread told apart."""
    output = recording.with_suffix(".txt")
    fields = "comm,pid,tid,time,period,event,ip,sym,dso"
    with output.open("w") as file:
        command = [tool("perf"), "script", "--no-inline", "--header", "-F", fields, "-i", str(recording)]
        subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=True)
    return output


def as_json(recording: Path) -> Path:
    """The recording as perf itself writes it as JSON: another way out of it than its text."""
    output = recording.with_suffix(".json")
    command = [tool("perf"), "data", "convert", "--force", "--to-json", str(output), "-i", str(recording)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StudyError(f"convert a recording to JSON: {done.stderr.strip()[-200:]}", "use perf 5.14 or newer")
    return output


def _run_perf(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        advice = "as root, or set kernel.perf_event_paranoid to 1 or less"
        raise StudyError(f"record with perf: {done.stderr.strip()[-200:]}", advice)


def _services(folder: Path, stack: ExitStack) -> tuple[list[Process], list[int]]:
    redis, back, store, front_of_redis, front_of_store = _free_ports(5)
    key = folder / "cluster.key"
    subprocess.run([scot(), "key", "new", key], check=True, capture_output=True, env=_variables())

    def start(role: str, *arguments: str) -> Process:
        program = folder / f"scot-{role}"
        program.symlink_to(scot())
        command = [str(program), *arguments, "--key-file", str(key)]
        return stack.enter_context(_started(command, "ready", folder))

    listen = ["--listen", f"127.0.0.1:{back}", "--redis", f"127.0.0.1:{redis}"]
    served = [
        stack.enter_context(_started(_redis(redis, folder), "Ready to accept connections", folder)),
        start("store", "kv", "--listen", f"127.0.0.1:{store}", "--log", str(folder / "store.log")),
        start("back", "sidecar", "server", *listen, "--dead-letters", str(folder / "dead.txt")),
        start("front", *_front(front_of_redis, back)),
        start("front-store", *_front(front_of_store, store)),
    ]
    return served, [front_of_redis, front_of_store]


def _redis(port: int, folder: Path) -> list[str]:
    settings = {"port": port, "bind": "127.0.0.1", "dir": folder, "appendonly": "yes", "save": ""}
    return [tool("redis-server"), *(word for key, value in settings.items() for word in (f"--{key}", str(value)))]


def _front(port: int, server: int) -> list[str]:
    sides = ["--listen", f"127.0.0.1:{port}", "--server", f"127.0.0.1:{server}"]
    return ["sidecar", "client", *sides, "--durability", "none"]


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment, for TCP and UDP."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def _load(port: int) -> Iterator[Process]:
    size = ["-n", str(_REQUESTS), "-c", "20", "-d", "128", "-r", "10000"]
    command = [tool("redis-benchmark"), "-q", "-p", str(port), "-t", "set,get", *size]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            _stop(process)


@contextmanager
def _started(command: list[str], word: str, folder: Path) -> Iterator[Process]:
    """A process that has said on its output that it is ready."""
    said: list[str] = []
    output, errors = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(
        command, cwd=folder, env=_variables(), stdout=output, stderr=errors, text=True
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line)
                if word in line:
                    break
            else:
                raise StudyError(f"start {command[0]}: it ended: {''.join(said)[-300:]}", "see what it says")
            yield process
        finally:
            _stop(process)


def _variables() -> dict[str, str]:
    """This process's variables but the lab's own, which scot would take for settings that it does not know."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SCOT_")}


def _stop(process: Process) -> None:
    process.terminate()
    try:
        process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
