"""Pipelines that turn objects into bytes, cycle by cycle: Reader, Converter, Writer behind one link (5.3, 6.2.2).

A Reader walks an object's schema, depth first. A line of it, and each field's data, is a block that comes over the
link; what is not there yet stalls it, and then another of its contexts may have it. With prefetch the data of the
top level's fields, and the schemata of the objects right below, are asked for when the line that names them is
there; below that nothing is (7.4.1). A context begins a message when the one before it has left the Reader, and
there always is another one. Blocks pass the link in the order in which they are asked for.

What is left out: misses of the block buffer and of its table of addresses, and more than 64 blocks under way.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Final

from scotfree.study.hardware.classes import ENTRY_BYTES, NUMBER_BYTES, Number, Object, Text, of_fields, wire_bytes

GHZ: Final = 2.0
BLOCK_BYTES: Final = 64
# Two links of 16 bytes (6.2.3); a block has a header of one such word.
LINK_BYTES: Final = 32
HEADER_BYTES: Final = 16
BLOCK_CYCLES: Final = (BLOCK_BYTES + HEADER_BYTES) / LINK_BYTES
# From asking for a block to having it, on a mesh of 4 x 4: what a field takes to be read (7.4.1). On 8 x 8 twice
# that (7.4.3).
NEAR: Final = 27.0
FAR: Final = 2 * NEAR
# A Chunk in two cycles; where a field has several, the others follow each other (5.3.2).
FIELD_CYCLES: Final = 2
CHUNK_BYTES: Final = 8
CONVERTER_CYCLES: Final = 4
SWITCH_CYCLES: Final = 1
# Lines of a schema that a Reader holds or awaits.
FIELD_BUFFER_LINES: Final = 4
_LINE_ENTRIES: Final = BLOCK_BYTES // ENTRY_BYTES
# Cores do not ask in one cycle: contexts begin so far apart.
_APART_CYCLES: Final = 37.0
# Each context's messages; those before a quarter of all are not counted.
_MESSAGES: Final = 40


@dataclass(frozen=True)
class Design:
    """The thesis' {pipelines, contexts}, at a distance from memory."""

    pipelines: int = 1
    contexts: int = 1
    latency: float = NEAR
    has_prefetch: bool = True
    # Without it a Reader waits until each of its Chunks is converted, and its message is written.
    is_pipelined: bool = True


@dataclass(frozen=True)
class Result:
    """What a design does on messages of one class."""

    gbit_per_s: float
    # From a message's beginning in its context until it is written, in cycles.
    latency: float
    # Of the link's time.
    link_share: float


@dataclass(frozen=True)
class _Step:
    """What a Reader does at one entry."""

    line: int
    blocks: tuple[int, ...]
    chunks: int
    wire_bytes: int
    is_top: bool
    # Lines of the schema below, if the field is an object.
    below: tuple[int, ...] = ()


def run(message: Object, design: Design) -> Result:
    """Messages of one class, one behind the other in each context."""
    world = _World(design)
    steps, size = list(_steps(message, count(), is_top=True)), wire_bytes(message)
    readers = [_Reader(world) for _ in range(design.pipelines)]
    contexts = design.pipelines * design.contexts
    for at in range(contexts):
        world.go_on(_context(world, readers[at // design.contexts], steps), at * _APART_CYCLES)
    begin, end = _MESSAGES * contexts // 4, _MESSAGES * contexts
    world.run(end)
    done = sorted(world.done)
    cycles = (done[end - 1][0] - done[begin - 1][0]) / (end - begin)
    counted = [took for _, took in done[begin:end]]
    blocks = len({block for step in steps for block in (step.line, *step.blocks)}) + -(-size // BLOCK_BYTES)
    return Result(size * 8 / cycles * GHZ, sum(counted) / len(counted), blocks * BLOCK_CYCLES / cycles)


def reader_cycles(message: Object) -> int:
    """What a Reader works on a message if everything is there."""
    return sum(_cycles(step) for step in _steps(message, count(), is_top=True))


def _cycles(step: _Step) -> int:
    return FIELD_CYCLES + step.chunks - 1


def _steps(message: Object, names: Iterator[int], is_top: bool) -> Iterator[_Step]:
    """Of each entry, depth first. Blocks are named by numbers: no two objects, and no two texts, share one."""
    lines = _named(names, len(message.fields) * ENTRY_BYTES)
    numbers = _named(names, sum(isinstance(field, Number) for field in message.fields) * NUMBER_BYTES)
    before = 0
    for at, (field, size) in enumerate(zip(message.fields, of_fields(message), strict=True)):
        line = lines[at // _LINE_ENTRIES]
        if isinstance(field, Number):
            yield _Step(line, (numbers[before * NUMBER_BYTES // BLOCK_BYTES],), 1, size, is_top)
            before += 1
        elif isinstance(field, Text):
            blocks = tuple(_named(names, field.bytes))
            yield _Step(line, blocks, max(-(-field.bytes // CHUNK_BYTES), 1), size, is_top)
        else:
            below = list(_steps(field, names, is_top=False))
            of_schema = tuple(dict.fromkeys(step.line for step in below))
            yield _Step(line, (), 1, size - wire_bytes(field), is_top, of_schema)
            yield from below


def _named(names: Iterator[int], size: int) -> list[int]:
    return [next(names) for _ in range(-(-size // BLOCK_BYTES))]


# What a context waits for: a time, or its Reader.
_Process = Generator["float | _Reader", None, None]


class _World:
    """The clock, the link, and what is done."""

    def __init__(self, design: Design) -> None:
        self.design = design
        self.now = 0.0
        # When each message was written, and how long it took.
        self.done: list[tuple[float, float]] = []
        self._link_free = 0.0
        self._order = count()
        self._waiting: list[tuple[float, int, _Process]] = []

    def go_on(self, process: _Process, at: float) -> None:
        """Goes on with it at a time."""
        heapq.heappush(self._waiting, (at, next(self._order), process))

    def run(self, messages: int) -> None:
        """Until so many are done."""
        while len(self.done) < messages:
            self.now, _, process = heapq.heappop(self._waiting)
            self._step(process)

    def _step(self, process: _Process) -> None:
        awaited = next(process, None)
        if isinstance(awaited, _Reader):
            awaited.ask(process)
        elif awaited is not None:
            self.go_on(process, awaited)

    def passed(self) -> float:
        """When a block is over the link that is asked for, or sent, now."""
        begin = max(self.now + self.design.latency - BLOCK_CYCLES, self._link_free)
        self._link_free = begin + BLOCK_CYCLES
        return self._link_free


class _Reader:
    """One that contexts share: who has it keeps it until something is not there."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._has: _Process | None = None
        self._last: _Process | None = None
        self._queue: deque[_Process] = deque()

    def ask(self, process: _Process) -> None:
        """It has it now, or in its turn."""
        if self._has is None:
            self._give(process)
        else:
            self._queue.append(process)

    def leave(self) -> None:
        """The next one has it."""
        self._has = None
        if self._queue:
            self._give(self._queue.popleft())

    def _give(self, process: _Process) -> None:
        switch = SWITCH_CYCLES if self._last not in (None, process) else 0
        self._has = self._last = process
        self._world.go_on(process, self._world.now + switch)


class _Message:
    """What of one message was asked for."""

    def __init__(self, world: _World, steps: list[_Step]) -> None:
        self._world, self._steps = world, steps
        self._there_at: dict[int, float] = {}
        self._top_lines = list(dict.fromkeys(step.line for step in steps if step.is_top))
        self._written = 0
        self.begun = world.now
        self.ends = 0.0

    def there_at(self, block: int) -> float:
        """When a block is there; if nobody has, it is asked for."""
        if block not in self._there_at:
            self._there_at[block] = self._world.passed()
        return self._there_at[block]

    def ahead(self, line: int) -> None:
        """Asks for the lines that the field buffer has room for once it is at this one."""
        if not self._world.design.has_prefetch or line not in self._top_lines:
            return
        at = self._top_lines.index(line)
        for coming in self._top_lines[at : at + FIELD_BUFFER_LINES]:
            if coming not in self._there_at:
                self._world.go_on(self._prefetched(coming), self.there_at(coming))

    def _prefetched(self, line: int) -> _Process:
        for step in self._steps:
            if step.is_top and step.line == line:
                for block in (*step.blocks, *step.below):
                    self.there_at(block)
        return
        yield

    def write(self, size: int) -> None:
        """Sends the blocks that are full now."""
        full = (self._written + size) // BLOCK_BYTES - self._written // BLOCK_BYTES
        self._written += size
        for _ in range(full):
            self.ends = self._world.passed()

    def end(self) -> None:
        """Sends what is left."""
        if self._written % BLOCK_BYTES:
            self.ends = self._world.passed()
        self.ends += CONVERTER_CYCLES
        self._world.done.append((self.ends, self.ends - self.begun))


def _context(world: _World, reader: _Reader, steps: list[_Step]) -> _Process:
    """Message after message."""
    while True:
        yield reader
        message = _Message(world, steps)
        for step in steps:
            message.ahead(step.line)
            for block in (step.line, *step.blocks):
                if (there_at := message.there_at(block)) > world.now:
                    reader.leave()
                    yield there_at
                    yield reader
            converting = 0 if world.design.is_pipelined else step.chunks * CONVERTER_CYCLES
            yield world.now + _cycles(step) + converting
            message.write(step.wire_bytes)
        message.end()
        reader.leave()
        if not world.design.is_pipelined:
            yield message.ends
