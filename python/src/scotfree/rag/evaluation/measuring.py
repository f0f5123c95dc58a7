"""A mode is measured in a process of its own, so that memory and processor time are its alone.

`python -m scotfree.rag.evaluation.measuring` reads a job as JSON, writes a line after each question and, last,
what it measured. It opens what another process built: its peak of memory is that of searching.
"""

from __future__ import annotations

import importlib
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from scotfree.rag.embed.embedder import Embedder
from scotfree.rag.evaluation.exact import COUNT
from scotfree.rag.evaluation.modes import Mode, Opening, Outcome, opened
from scotfree.rag.trouble import RagError

# Embedded before the first question: what a model does once is not that question's.
_WARM: Final = "a text that is no question"


@dataclass(frozen=True)
class Job:
    """What to measure."""

    mode: Mode
    # The folder in which all modes' indexes are.
    base: Path
    # What makes the embedder: `module:name`.
    embedder: str
    opening: Opening
    questions: Sequence[str]


@dataclass(frozen=True)
class Asked:
    """One question: the time of the whole, and what it took."""

    latency_ns: int
    outcome: Outcome


@dataclass(frozen=True)
class Measured:
    """All questions of a job, in their order."""

    # Of the process, its model and runtime included.
    peak_bytes: int
    # Of all questions, on all threads.
    cpu_ns: int
    asked: list[Asked]


def made(embedder: str) -> Embedder:
    """The embedder that `module:name` makes."""
    module, _, name = embedder.partition(":")
    found: Embedder = getattr(importlib.import_module(module), name)()
    return found


def measure(job: Job, progress: Callable[[int], object] = lambda _: None) -> Measured:
    """Measures in a process of its own; progress is in questions. A `RagError` says why it cannot be done."""
    words = [sys.executable, "-m", "scotfree.rag.evaluation.measuring"]
    pipe = subprocess.PIPE
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=said) as process,
    ):
        try:
            last = b""
            for last in _spoken(process, json.dumps(asdict(job), default=_plain).encode()):
                if not last.strip():
                    progress(1)
            status = process.wait()
        finally:
            # Whatever ends this one ends that one.
            process.kill()
        said.seek(0)
        return _measured(job.mode, status, last, said.read().decode(errors="replace"))


def _spoken(process: subprocess.Popen[bytes], job: bytes) -> Iterable[bytes]:
    """What it says once it has its job; nothing, if it ended before."""
    assert process.stdin and process.stdout
    with suppress(BrokenPipeError), process.stdin as stdin:
        stdin.write(job)
    return process.stdout


def _measured(mode: Mode, status: int, last: bytes, said: str) -> Measured:
    if status < 0:
        name = signal.Signals(-status).name
        raise RagError(
            f"measure {mode.value}: its process was ended by {name}",
            "if that was for want of memory, give it more or leave this mode out",
        )
    if status != 0:
        raise RuntimeError(f"the process that measured {mode.value} ended with {status}: {said[-4000:]}")
    found = json.loads(last)
    if "problem" in found:
        raise RagError(found["problem"], found["advice"])
    asked = [Asked(each["latency_ns"], _outcome(each["outcome"])) for each in found["asked"]]
    return Measured(found["peak_bytes"], found["cpu_ns"], asked)


def _outcome(said: dict[str, Any]) -> Outcome:
    return Outcome(**said | {"places": [(document, start) for document, start in said["places"]]})


def _plain(value: object) -> object:
    return value.value if isinstance(value, Mode) else str(value)


def _main() -> int:
    said = json.load(sys.stdin)
    said |= {"mode": Mode(said["mode"]), "base": Path(said["base"]), "opening": Opening(**said["opening"])}
    try:
        print(json.dumps(asdict(_ask(Job(**said)))))
    except RagError as error:
        print(json.dumps({"problem": error.problem, "advice": error.advice}))
    return 0


def _ask(job: Job) -> Measured:
    embedder = made(job.embedder)
    with opened(job.mode, job.base, embedder, job.opening) as searcher:
        embedder.embed([_WARM])
        asked, before = [], _cpu_ns()
        for question in job.questions:
            began = time.perf_counter_ns()
            outcome = searcher.search(question, COUNT)
            asked.append(Asked(time.perf_counter_ns() - began, outcome))
            print(flush=True)
        return Measured(_peak_bytes(), _cpu_ns() - before, asked)


def _cpu_ns() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)


def _peak_bytes() -> int:
    """The most that this process had resident. What getrusage says is also of the one that started it."""
    found = re.search(r"^VmHWM:\s*(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, "Linux says it of every process"
    return int(found[1]) << 10


if __name__ == "__main__":
    raise SystemExit(_main())
