"""The calls of a fit, made on this machine by `scot lab fit-calls`: SETs without and with a device, in turns."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scotfree.study.trouble import StudyError

# The command `scot` says by it where it is, when it has started this.
PROGRAM: Final = "SCOT_PROGRAM"
# How a shell tells an interrupt.
_INTERRUPTED: Final = 130
_WAYS: Final = {"redis": "a Redis", "kv": "the embedded server"}
_PLANES: Final = {"xdp": "programs in the kernel", "user": "a process"}


@dataclass(frozen=True)
class Recorded:
    """Records of calls without and with the remedy, and what they were made with."""

    baseline: Path
    remedy: Path
    about: str


def record(folder: Path, plane: str, service: str) -> Recorded:
    """Makes the calls, for half a minute; what `scot` says meanwhile goes to standard error."""
    scot = program()
    words = [str(scot), "lab", "fit-calls", str(folder), "--json", "--plane", plane, "--service", service]
    try:
        code, printed = _run(words)
    except OSError as error:
        raise StudyError(f"fit --here: run {scot}: {error.strerror or error}", "see: scot doctor") from None
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    if code != 0:
        raise StudyError(
            f"fit --here: {scot} lab fit-calls ended with {code}", "see what it says above, and scot doctor"
        )
    said = json.loads(printed)
    about = f"a device of {_PLANES[said['plane']]} before {_WAYS[said['service']]}"
    return Recorded(Path(said["files"][0]), Path(said["files"][1]), about)


def _run(words: list[str]) -> tuple[int, bytes]:
    """How it ended, and what it printed. What interrupts this ends it, once it has removed its namespaces."""
    with subprocess.Popen(words, stdout=subprocess.PIPE) as running:
        try:
            printed = running.communicate()[0]
        except BaseException:
            running.terminate()
            raise
    return running.returncode, printed


def program() -> Path:
    """The command `scot`: the one that has started this, else the one in the path or beside this program."""
    beside = Path(sys.argv[0]).parent / "scot"
    found = os.environ.get(PROGRAM) or shutil.which("scot") or (str(beside) if beside.is_file() else None)
    if found is None:
        raise StudyError(
            "fit --here: there is no program `scot` in the path",
            "build it (scripts/build.sh) and put it there, or record the calls elsewhere: docs/plan.md",
        )
    return Path(found)
