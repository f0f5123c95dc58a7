"""The text of `perf script`: a line per sample, its frames below it from the leaf, an empty line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.stacks import Frame, Origin, Stacks, unit_of
from scotfree.study.ingest.textlines import lines

# comm pid[/tid] [cpu] time: [period] event: …   A comm has 15 bytes at most, spaces among them.
_SAMPLE = re.compile(
    r"^\s*(?P<comm>\S.{0,31}?)\s+(?P<pid>\d+)(?:/(?P<tid>\d+))?\s+(?:\[\d+\]\s+)?(?P<time>\d+\.\d+):\s+"
    r"(?:(?P<period>\d{1,18})\s+)?(?P<event>[^\s:][^\s]*):(?P<rest>\s.*)?$"
)
_FRAME = re.compile(r"^\s*[0-9a-f]{1,16}\s+(?P<symbol>\S.*?)(?:\+0x[0-9a-f]+)?\s*$")
_HOST = re.compile(r"^#\s*hostname\s*:\s*(\S+)")
_PROCESSES_MAX = 65_536


class PerfScript:
    """See the module."""

    form = "perf-script"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By a sample's line among the first that are no comment."""
        text = head.decode("utf-8", "replace").splitlines()
        first = (line for line in text if line.strip() and not line.startswith("#"))
        return any(_SAMPLE.match(line[:400]) for line in islice(first, 3))

    def read(self, source: Source) -> Iterator[Batch]:
        """A row per distinct stack. A process is known by its first thread's name, as far as that was seen."""
        reading = _Reading(source)
        for line in lines(source):
            reading.line(line)
            if reading.stacks.is_full():
                yield reading.stacks.take()
        reading.end_sample()
        yield reading.stacks.take()


class _Sample(NamedTuple):
    service: str
    unit: str
    weight: float


class _Reading:
    def __init__(self, source: Source) -> None:
        self.stacks = Stacks(source)
        self._source = source
        self._machine: str | None = None
        self._names: dict[str, str] = {}
        self._sample: _Sample | None = None
        self._leaf_first: list[Frame] = []
        self._record = 0

    def line(self, line: str) -> None:
        if not line.strip():
            self.end_sample()
        elif line.startswith("#"):
            self._comment(line)
        elif found := _SAMPLE.match(line):
            self.end_sample()
            self._begin_sample(found)
        elif self._sample is None or not self._frame(line):
            reason = "neither a sample of perf script nor a frame of one"
            self._source.ledger.note(self._source.number, reason, record=self._record, detail=line[:200])

    def end_sample(self) -> None:
        if self._sample is None:
            return
        origin = Origin(self._sample.service, self._machine, None, self._sample.unit)
        self.stacks.add(origin, tuple(reversed(self._leaf_first)), self._sample.weight, self._record)
        self._sample, self._leaf_first = None, []
        self._record += 1

    def _comment(self, line: str) -> None:
        if found := _HOST.match(line):
            self._machine = found[1]

    def _begin_sample(self, found: re.Match[str]) -> None:
        period, unit = found["period"], unit_of(found["event"])
        if period is None and unit in ("cpu_ns", "cpu_cycles"):
            unit = "cpu_samples"
        self._sample = _Sample(self._process(found), unit, float(period or 1))
        rest = (found["rest"] or "").strip()
        # Without call chains the one frame stands behind the event.
        if rest:
            self._frame(rest)

    def _process(self, found: re.Match[str]) -> str:
        comm, pid, tid = found["comm"], found["pid"], found["tid"]
        if tid is None:
            return comm
        if pid == tid and len(self._names) < _PROCESSES_MAX:
            self._names[pid] = comm
        return self._names.get(pid, comm)

    def _frame(self, line: str) -> bool:
        text, module = _split_module(line.rstrip())
        found = _FRAME.match(text)
        if found is None:
            return False
        self._leaf_first.append(Frame(found["symbol"], module))
        return True


def _split_module(line: str) -> tuple[str, str | None]:
    """A frame's line without `(module)`, and the module. C++ symbols have brackets too, files may be deleted."""
    line = line.removesuffix(" (deleted))") + ")" if line.endswith(" (deleted))") else line
    text, bracket, module = line.rpartition(" (")
    if not bracket or not module.endswith(")"):
        return line, None
    name = module[:-1]
    return text, None if name in ("[unknown]", "inlined", "") else name
