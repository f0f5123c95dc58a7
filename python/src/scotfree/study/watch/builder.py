"""Makes stores in a process of its own: what an ingest holds and takes is not the receiver's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from scotfree.study.ingest.limits import Limits
from scotfree.study.trouble import StudyError


class Builder:
    """The process, begun when it is first needed, and again after it ended."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._process: subprocess.Popen[str] | None = None

    def build(self, segments: Sequence[Path], store: Path) -> None:
        """Waits for the store. A `StudyError` says why there is none."""
        asked = {
            "segments": [str(path) for path in segments],
            "store": str(store),
            "memory": self._limits.memory,
            "threads": self._limits.threads,
        }
        answer = self._ask(asked)
        if answer is None:
            status = self._ended()
            raise StudyError(f"make a store: its process ended with {status}", "give it more memory")
        if "problem" in answer:
            raise StudyError(answer["problem"], answer["advice"])

    def _ask(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        process = self._running()
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            return None
        answer: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return answer

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            # A session of its own: an interrupt of the terminal is for us, who wait for what is under way.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "scotfree.study.watch.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        return self._process

    def _ended(self) -> int:
        assert self._process
        process, self._process = self._process, None
        process.kill()
        return process.wait()

    def close(self) -> None:
        """Ends it, at once."""
        if self._process is not None:
            with suppress(OSError):
                self._ended()
