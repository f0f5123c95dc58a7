"""Stacks under way to rows of `profile`: equal ones become one row, their weights added up."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source

# Bounds of what an input can make us hold. Beyond them a frame's name is cut and a stack loses its roots, which
# the ledger says; classification begins at the leaf.
SYMBOL_CHARS_MAX = 1_000
STACK_FRAMES_MAX = 1_024
_BATCH_FRAMES_MAX = 1_000_000

KERNEL = "[kernel.kallsyms]"
UNKNOWN = "[unknown]"

_TEXT = pa.dictionary(pa.int32(), pa.string())


class Origin(NamedTuple):
    """Where samples come from and what their weights count."""

    service: str | None
    machine: str | None
    ts_ns: int | None
    unit: str


class Frame(NamedTuple):
    """One function of a stack."""

    symbol: str
    # The file it stands in, where the input says it.
    module: str | None = None


class Stacks:
    """Rows under way."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._weights: dict[tuple[Origin, tuple[Frame, ...]], float] = {}
        self._frames = 0
        self._records = 0

    def add(self, origin: Origin, root_first: tuple[Frame, ...], weight: float, record: int) -> None:
        """Takes one sample."""
        if not 0 <= weight < math.inf:
            self._source.ledger.note(self._source.number, "weight is no amount", record=record, detail=str(weight))
            return
        self._records += 1
        key = (origin, self._bounded(root_first, record))
        if key not in self._weights:
            self._frames += len(key[1])
        self._weights[key] = self._weights.get(key, 0.0) + weight

    def is_full(self) -> bool:
        """Whether it is time to hand on what has come together."""
        return len(self._weights) >= BATCH_ROWS_MAX or self._frames >= _BATCH_FRAMES_MAX

    def take(self) -> Batch:
        """What has come together; the rows begin anew."""
        batch = Batch("profile", _table(self._weights), self._records)
        self._weights, self._frames, self._records = {}, 0, 0
        return batch

    def _bounded(self, frames: tuple[Frame, ...], record: int) -> tuple[Frame, ...]:
        if len(frames) > STACK_FRAMES_MAX:
            reason = f"stack of more than {STACK_FRAMES_MAX} frames, kept without its roots"
            self._source.ledger.note(self._source.number, reason, record=record, kept=True)
            frames = frames[-STACK_FRAMES_MAX:]
        if any(len(frame.symbol) > SYMBOL_CHARS_MAX for frame in frames):
            reason = f"symbol of more than {SYMBOL_CHARS_MAX} characters, cut"
            self._source.ledger.note(self._source.number, reason, record=record, kept=True)
            frames = tuple(Frame(frame.symbol[:SYMBOL_CHARS_MAX], frame.module) for frame in frames)
        return frames


def unit_of(event: str) -> str:
    """What the weight of a sample of this event counts; events that are no processor time keep their name."""
    name = re.split("[:/]", event, maxsplit=1)[0]
    if name in ("cpu-clock", "task-clock"):
        return "cpu_ns"
    return "cpu_cycles" if "cycles" in name else name


def _table(weights: dict[tuple[Origin, tuple[Frame, ...]], float]) -> pa.Table:
    origins = [origin for origin, _ in weights]
    stacks = [frames for _, frames in weights]
    columns = [
        _text([origin.service for origin in origins]),
        _text([origin.machine for origin in origins]),
        pa.array([origin.ts_ns for origin in origins], pa.int64()),
        _lists(stacks, [frame.symbol for frames in stacks for frame in frames]),
        _lists(stacks, [frame.module for frames in stacks for frame in frames]),
        pa.array(weights.values(), pa.float64()),
        _text([origin.unit for origin in origins]),
    ]
    return pa.Table.from_arrays(columns, schema=schema.PROFILE)


def _text(values: list[str | None]) -> pa.Array:
    return pa.array(values, pa.string()).dictionary_encode().cast(_TEXT)


def _lists(stacks: list[tuple[Frame, ...]], flat: list[str] | list[str | None]) -> pa.Array:
    offsets = [0]
    for frames in stacks:
        offsets.append(offsets[-1] + len(frames))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), _text(list(flat)))
