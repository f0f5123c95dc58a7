"""Folded stacks: `root;caller;leaf 12`, one stack per line, as flame graphs are drawn from."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.stacks import KERNEL, Frame, Origin, Stacks
from scotfree.study.ingest.textlines import lines

_LINE = re.compile(r"^\S.* \d+(\.\d+)?$")
# What the usual collapsing scripts append to a frame: kernel, compiled at run time, inlined.
_MARKS = {"_[k]": KERNEL, "_[j]": "[jit]", "_[i]": None}
_ORIGIN = Origin(service=None, machine=None, ts_ns=None, unit="cpu_samples")


class Folded:
    """See the module."""

    form = "folded"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By its first lines: all end in a number, and some have frames in between."""
        whole = head.decode("utf-8", "replace").splitlines()[:20]
        whole = [line for line in (whole[:-1] or whole) if line.strip()]
        return bool(whole) and all(map(_LINE.match, whole)) and any(";" in line for line in whole)

    def read(self, source: Source) -> Iterator[Batch]:
        """A row per stack. Whose it is the form does not say."""
        stacks = Stacks(source)
        for record, line in enumerate(filter(str.strip, lines(source))):
            _read_line(line, record, source, stacks)
            if stacks.is_full():
                yield stacks.take()
        yield stacks.take()


def _read_line(line: str, record: int, source: Source, stacks: Stacks) -> None:
    names, _, count = line.rstrip().rpartition(" ")
    weight = _number(count)
    if not names or weight is None:
        source.ledger.note(source.number, "not a folded stack with its count", record=record, detail=line[:200])
        return
    stacks.add(_ORIGIN, tuple(_frame(name) for name in names.split(";")), weight, record)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _frame(name: str) -> Frame:
    mark = name[-4:]
    return Frame(name[:-4], _MARKS[mark]) if mark in _MARKS else Frame(name)
