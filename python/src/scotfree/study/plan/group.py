"""What a write of a group takes more than one of a single server: the one place that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MEASURED_BY: Final = "scot lab run group-etcd-put, three members on one machine that store before they answer"
# That was measured with so many members.
MEMBERS: Final = 3


@dataclass(frozen=True)
class Protocol:
    """How one protocol writes."""

    name: str
    # Datagrams between members that an answer waits for, one behind the other, with so many members.
    trips_of_members: float
    trips: float
    # What a write takes more than one of a single server, in ns, the members' wires left out.
    more_ns: float

    def trips_with(self, members: int) -> float:
        """One-way trips between members before a write is answered."""
        return self.trips + self.trips_of_members * members

    def more_with(self, members: int) -> float:
        """What a write takes more, in ns: each trip its part of what was measured."""
        return self.more_ns * self.trips_with(members) / self.trips_with(MEMBERS)


# A write of one server alone, one at a time, on the machine of that experiment.
ALONE_NS: Final = 38_000.0
# Medians of lab/results/group-etcd-put.json, one write at a time, less that of one server.
# Got by the head of a chain: to the tail, one trip less than members, and straight back. Hermes: to all, and back.
CHAIN: Final = Protocol("craq", 1.0, 0.0, 513_000.0)
HERMES: Final = Protocol("hermes", 0.0, 2.0, 447_000.0)
PROTOCOLS: Final = (CHAIN, HERMES)
