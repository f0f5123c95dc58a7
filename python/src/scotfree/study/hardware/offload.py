"""What a call's RPC layer costs the core if hardware does parts of it: the analytical model of figure 7.7.

The layer has three modules: payload and header, which are transformed, and dispatch. A core that gives hardware
the first two asks for each message's by itself and waits: five traversals of what lies between, and the work.
Hardware of the core's own is next to it; hardware that has dispatch, too, sits in the NIC and is not asked at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from scotfree.study.hardware.classes import MIXED, wire_bytes
from scotfree.study.hardware.pipelines import GHZ, reader_cycles

# Of the layer (figure 3.4).
PAYLOAD: Final = 0.60
HEADER: Final = 0.35
# The core asks; what is to do is read; the data is read; the result is written; the core is told (6.2.3).
TRAVERSALS: Final = 5
# On chip, of two gigahertz (6.2.3); over PCIe about 1 us (6.2.1).
TRAVERSAL_CYCLES: Final = 40.0
ON_CHIP_NS: Final = TRAVERSAL_CYCLES / GHZ
PCIE_NS: Final = 1_000.0
# What a pipeline works on a byte (`pipelines`, of Mixed).
WORK_NS_PER_BYTE: Final = reader_cycles(MIXED) / wire_bytes(MIXED) / GHZ


class Design(StrEnum):
    """Who does the modules."""

    NONE = "the core alone"
    PAYLOAD = "hardware for the payload"
    BOTH = "hardware for payload and header"
    PRIVATE = "such hardware for each core"
    FULL = "hardware in the NIC for all of it"


@dataclass(frozen=True)
class Layer:
    """The RPC layer of a call, in any unit of time (cycles in the thesis)."""

    # Of the core, without hardware.
    time: float
    # Messages of the call and of those below it, that come or go: each has a header and a payload.
    messages: float
    traversal: float
    # Of the hardware, on all headers and payloads together.
    work: float
    payload: float = PAYLOAD
    header: float = HEADER

    @property
    def dispatch(self) -> float:
        """Its share."""
        return 1 - self.payload - self.header

    def with_(self, design: Design) -> float:
        """What it takes by one of the designs."""
        return self.kept(design) * self.time + self.cost(design)

    def kept(self, design: Design) -> float:
        """The share that the core goes on doing."""
        return {
            Design.NONE: 1.0,
            Design.PAYLOAD: 1 - self.payload,
            Design.BOTH: self.dispatch,
            Design.PRIVATE: self.dispatch,
            Design.FULL: 0.0,
        }[design]

    def cost(self, design: Design) -> float:
        """The ways to the hardware, and its work, of which half is on payloads and half on headers."""
        return self._ways(design) * self.traversal + self._work(design)

    def _ways(self, design: Design) -> float:
        return {Design.PAYLOAD: 1, Design.BOTH: 2}.get(design, 0) * self.messages * TRAVERSALS

    def _work(self, design: Design) -> float:
        return {Design.NONE: 0.0, Design.PAYLOAD: self.work / 2}.get(design, self.work)

    def times_less(self, design: Design) -> float:
        """How many times as long it takes without."""
        return self.time / self.with_(design)

    def traversal_max(self, design: Design) -> float:
        """From which traversal on what the core asks for costs more than it saves; 0: always."""
        saved = (1 - self.kept(design)) * self.time - self._work(design)
        return max(saved, 0.0) / self._ways(design)


# UniqueId of the thesis: four messages, 1,600 cycles of traversals, 90 of work. The layer's own cycles are
# unpublished; by 1.7 for payload alone they are 4,490, by 2.3 for both 4,392: the one number that is fitted.
UNIQUE_ID: Final = Layer(4_440.0, 4, TRAVERSAL_CYCLES, 90.0)
# How many times less the layer takes: of the bar in the middle none is printed but that it lies below `OPTIMIZED`.
PUBLISHED: Final = {Design.NONE: 1.0, Design.PAYLOAD: 1.7, Design.BOTH: 2.3, Design.FULL: 50.0}
FULL_OVER_BOTH: Final = 21.5
# An interface that costs 60 cycles a module, 3.36 times less, is between `BOTH` and `PRIVATE` (7.5).
OPTIMIZED: Final = replace(UNIQUE_ID, traversal=60.0 / TRAVERSALS)
# What the layer's parts take by 3.2, in cycles: 200 ns a header, 100 ns a dispatch.
HEADER_CYCLES: Final = 400.0
DISPATCH_CYCLES: Final = 200.0


def layer_of(
    layer_ns: float,
    messages: float,
    message_bytes: float,
    traversal_ns: float,
    payload: float = PAYLOAD,
    header: float = HEADER,
) -> Layer:
    """One's own calls, in ns: what hardware works on follows from the bytes of all messages together."""
    return Layer(layer_ns, messages, traversal_ns, message_bytes * WORK_NS_PER_BYTE, payload, header)
