"""OTLP profiles (profiles.v1development of opentelemetry-proto 1.45.2), protobuf and JSON, to stacks.

Samples point into a dictionary that the whole message shares; it may stand behind them, so a message is held
whole, up to a bound. The two encodings are taken apart in otlp_profiles_wire and otlp_profiles_json.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Protocol

from scotfree.study.ingest import symbols
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.stacks import KERNEL, Frame, Origin, Stacks
from scotfree.study.ingest.symbols import Measure, Tables, TooLarge, ValueType
from scotfree.study.ingest.wire import Damaged

ATTRIBUTES_MAX: Final = 256


@dataclass
class Dictionary:
    """The tables of a message. Index 0 of each means: not given."""

    tables: Tables = field(default_factory=Tables)
    # By index: a function that gives the locations, leaf first.
    stacks: list[Callable[[], Iterable[int]]] = field(default_factory=list)
    attributes: list[tuple[str, str]] = field(default_factory=list)
    _frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)

    def attributes_of(self, indices: Iterable[int]) -> dict[str, str]:
        """The attributes with these indices."""
        known = (self.attributes[index] for index in indices if 0 < index < len(self.attributes))
        return dict(islice(known, ATTRIBUTES_MAX))

    def stack(self, index: int) -> tuple[Frame, ...]:
        """The frames of a stack, root first."""
        known = self._frames.get(index)
        if known is None:
            places = self.stacks[index]() if 0 <= index < len(self.stacks) else ()
            known = self._frames[index] = self.tables.stack(places)
        return known

    def mark_kernel(self, location: int, attributes: dict[str, str]) -> None:
        """Gives a place without a file the kernel's name, if its attributes say that it is of the kernel."""
        module, functions = self.tables.locations[location]
        if module == 0 and attributes.get("profile.frame.type") == "kernel":
            self.tables.modules[-1] = len(self.tables.strings)
            self.tables.strings.append(KERNEL)
            self.tables.locations[location] = (-1, functions)


@dataclass(frozen=True)
class Sample:
    """A sample, still pointing into the dictionary."""

    stack: int
    attributes: list[int]
    # The sum of its values; how many moments it names where it has no values.
    weight: float


class Profile(Protocol):
    """One profile of a message."""

    resource: dict[str, str]
    sample_type: ValueType
    period_type: ValueType
    period: int
    ts_ns: int | None

    def samples(self) -> Iterator[Sample]:
        """Its samples, one at a time."""


class Message(Protocol):
    """One message, in either encoding."""

    dictionary: Dictionary

    def profiles(self) -> Iterator[Profile]:
        """Its profiles."""


class _Decoder(Protocol):
    form: str

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins so has this encoding."""

    def messages(self, source: Source) -> Iterator[Message]:
        """The messages of a file; `Damaged` or `TooLarge` where it cannot be read on."""


class OtlpProfiles:
    """A reader of either encoding."""

    def __init__(self, decoder: _Decoder) -> None:
        self._decoder = decoder
        self.form = decoder.form

    def recognises(self, path: Path, head: bytes) -> bool:
        """See the decoder."""
        return self._decoder.recognises(head)

    def read(self, source: Source) -> Iterator[Batch]:
        """A row per distinct stack of each profile. A damaged message ends itself, not those behind it."""
        stacks = Stacks(source)
        try:
            for message in self._decoder.messages(source):
                yield from _read(message, stacks, source)
        except (Damaged, TooLarge) as error:
            symbols.refuse(source, error)
        yield stacks.take()


def _read(message: Message, stacks: Stacks, source: Source) -> Iterator[Batch]:
    try:
        for record, (origin, frames, weight) in enumerate(_samples(message)):
            stacks.add(origin, frames, weight, record)
            if stacks.is_full():
                yield stacks.take()
    except Damaged as error:
        symbols.refuse(source, error)


def _samples(message: Message) -> Iterator[tuple[Origin, tuple[Frame, ...], float]]:
    for profile in message.profiles():
        measure = symbols.measure([profile.sample_type], profile.period_type, profile.period)
        for sample in profile.samples():
            origin = _origin(profile, message.dictionary.attributes_of(sample.attributes), measure)
            yield origin, message.dictionary.stack(sample.stack), sample.weight * measure.factor


def _origin(profile: Profile, own: dict[str, str], measure: Measure) -> Origin:
    attributes = own | profile.resource
    return Origin(symbols.service_of(attributes), symbols.machine_of(attributes), profile.ts_ns, measure.unit)
