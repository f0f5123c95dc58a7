"""What pprof and OTLP profiles share: tables of functions and locations, and what a sample's value counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from scotfree.study.ingest.reader import Source
from scotfree.study.ingest.stacks import STACK_FRAMES_MAX, UNKNOWN, Frame

# Of an input as a whole; one that is larger is refused with a row of the ledger.
BYTES_MAX: Final = 256 << 20
# Entries of all tables together; a hundred bytes each in memory.
ENTRIES_MAX: Final = 4_000_000
# Functions inlined at one place.
LINES_MAX: Final = 128

_KERNEL_FILES: Final = re.compile(r"^\[?(kernel|guest\.kernel|vmlinux)")


class TooLarge(Exception):
    """An input with more than we hold; the text is the ledger's reason."""


class ValueType(NamedTuple):
    """What a value counts, as the format says it: ("cpu", "nanoseconds")."""

    type: str
    unit: str


@dataclass
class Tables:
    """The tables that samples point into; names by index, as far as they are known."""

    strings: list[str] = field(default_factory=list)
    # By id: the index of a string.
    functions: dict[int, int] = field(default_factory=dict)
    modules: dict[int, int] = field(default_factory=dict)
    # By id: the module's id and the functions' ids, the innermost first.
    locations: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    _frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)

    def string(self, index: int) -> str:
        """The string, or nothing where there is none."""
        return self.strings[index] if 0 <= index < len(self.strings) else ""

    def check(self, others: int = 0) -> None:
        """Raises if there is too much of it, together with entries of tables that are not here."""
        entries = len(self.strings) + len(self.functions) + len(self.modules) + len(self.locations)
        if entries + others > ENTRIES_MAX:
            raise TooLarge(f"more than {ENTRIES_MAX} strings, functions and places")

    def stack(self, leaf_first: Iterable[int]) -> tuple[Frame, ...]:
        """The frames of these locations, root first; of a stack too deep one location more than the bound."""
        places = list(islice(leaf_first, STACK_FRAMES_MAX + 1))
        return tuple(frame for place in reversed(places) for frame in self._frames_of(place))

    def _frames_of(self, location: int) -> tuple[Frame, ...]:
        """Root first: a caller before what was inlined into it."""
        known = self._frames.get(location)
        if known is None:
            known = self._frames[location] = self._named(location)
        return known

    def _named(self, location: int) -> tuple[Frame, ...]:
        module_id, functions = self.locations.get(location, (0, ()))
        module = self.string(self.modules.get(module_id, 0)) or None
        if module is not None and _KERNEL_FILES.match(module):
            module = f"[{module.strip('[]')}]"
        names = [self.string(self.functions.get(function, 0)) or UNKNOWN for function in functions[:LINES_MAX]]
        return tuple(Frame(name, module) for name in reversed(names or [UNKNOWN]))


@dataclass(frozen=True)
class Measure:
    """How a sample's value becomes a weight."""

    # Which of its values.
    index: int
    unit: str
    factor: float


def measure(types: Sequence[ValueType], period_type: ValueType, period: int) -> Measure:
    """Processor time in nanoseconds if it can be had, else cycles, else samples; else the last type, named."""
    by_type = {kind: index for index, kind in enumerate(types)}
    for kind, index in by_type.items():
        if kind.type == "cpu" and kind.unit in _NS:
            return Measure(index, "cpu_ns", _NS[kind.unit])
    for kind, index in by_type.items():
        if kind.type in ("cycles", "cpu_cycles") or (kind.type == "cpu" and kind.unit == "cycles"):
            return Measure(index, "cpu_cycles", 1.0)
    for kind, index in by_type.items():
        if kind.type in ("samples", "sample", "cpu", "events") and kind.unit in ("count", ""):
            return _of_period(index, period_type, period)
    last = types[-1] if types else ValueType("", "")
    return Measure(max(len(types) - 1, 0), last.type or "unknown", 1.0)


_NS: Final = {"nanoseconds": 1.0, "ns": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9}


def _of_period(index: int, period_type: ValueType, period: int) -> Measure:
    """Samples, each of which stands for a period."""
    if period > 0 and period_type.unit in _NS and period_type.type in ("cpu", "cpu-clock", "task-clock"):
        return Measure(index, "cpu_ns", period * _NS[period_type.unit])
    if period > 0 and period_type.unit == "cycles":
        return Measure(index, "cpu_cycles", float(period))
    return Measure(index, "cpu_samples", 1.0)


def service_of(attributes: dict[str, str]) -> str | None:
    """Who runs, by the labels or attributes that tools use."""
    return _first(attributes, ("service.name", "service_name", "service", "process.executable.name"))


def machine_of(attributes: dict[str, str]) -> str | None:
    """Where it runs."""
    return _first(attributes, ("host.name", "hostname", "host", "node", "instance"))


def _first(attributes: dict[str, str], keys: tuple[str, ...]) -> str | None:
    return next((attributes[key] for key in keys if attributes.get(key)), None)


def refuse(source: Source, error: Exception) -> None:
    """The ledger's row of an input that cannot be read on."""
    reason = str(error) if isinstance(error, TooLarge) else f"damaged or cut off: {error}"
    source.ledger.note(source.number, reason)
