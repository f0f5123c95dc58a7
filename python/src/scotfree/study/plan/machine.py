"""Which machine this is, and which commit of the project: a fit belongs to both."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from scotfree.study.plan.registry import entries


@dataclass(frozen=True)
class Machine:
    """As results of experiments name it."""

    name: str
    kernel: str


def this() -> Machine:
    """The machine that this runs on."""
    processors = os.cpu_count() or 1
    model = _first(Path("/proc/cpuinfo"), r"model name\s*: (.*)") or platform.processor() or platform.machine()
    memory = _first(Path("/proc/meminfo"), r"MemTotal:\s*(\d+) kB")
    size = f", {int(memory) / 2**20:.1f} GiB" if memory else ""
    return Machine(f"{processors} x {model}{size}", platform.release())


def _first(path: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, path.read_text())
    except OSError:
        return None
    return found.group(1).strip() if found else None


def commit() -> str:
    """Of the project's repository that this runs in; empty outside of one."""
    return _git("rev-parse", "HEAD") or ""


def has_changed_since(commit: str, remedy: str) -> bool:
    """Whether the remedy's code differs from that of a commit; no, where there is no repository to ask.

    Of a commit that the repository does not know nobody can say that it does not, nor of a remedy that is none.
    """
    if not commit or not _git("rev-parse", "HEAD"):
        return False
    if remedy not in entries():
        return True
    if not _git("rev-parse", "--verify", f"{commit}^{{commit}}"):
        return True
    return bool(_git("diff", "--name-only", commit, "--", *(f":/{path}" for path in entries()[remedy].covers)))


def _git(*arguments: str) -> str | None:
    """What git says, of the repository that these sources lie in."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
