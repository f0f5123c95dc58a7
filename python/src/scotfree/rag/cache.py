"""A cache of embeddings: what is cheap to make again and seldom used goes first (thesis, Algorithm 2).

The thesis caches whole clusters; an index caches passages, of which it wants few of each cluster.

Where the algorithm is faulty: it compares with a maxCost that nothing sets (minCost is meant), evicts even when
there is room (here only when there is none), and lowers every counter at each access (here when it is looked at,
with the same result).
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import Final

from scotfree.rag.embed.embedder import Vectors

# What is left of a counter after an access to another. The thesis gives no number.
DECAY: Final = 0.99
# Weights of old may be so many times those that count, and so many more.
_STALE_MAX: Final = 4
_STALE_FEW: Final = 64


@dataclass
class _Entry:
    embeddings: Vectors
    cost_ns: float
    # Of the counter as it would have been at the beginning, had it been lowered ever since: such counters can be
    # compared whenever they were set, and comparing them is comparing what they are now.
    log_counter: float
    serial: int


class Cache:
    """Embeddings of clusters or of passages, at most so many bytes."""

    def __init__(self, bytes_max: int, decay: float = DECAY) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._entries: dict[int, _Entry] = {}
        # Weight, serial of the entry that had it, key; an entry's old weights stay until they come up.
        self._heap: list[tuple[float, int, int]] = []
        self._log_decay = math.log(decay)
        self._time = 0
        self._serial = 0

    def __contains__(self, key: int) -> bool:
        """Whether it is here, without counting that as an access."""
        return key in self._entries

    def __len__(self) -> int:
        """How many are here."""
        return len(self._entries)

    def get(self, key: int) -> Vectors | None:
        """The embeddings, if they are here: one access."""
        entry = self._entries.get(key)
        if entry:
            now = math.exp(entry.log_counter + self._time * self._log_decay)
            self._weigh(key, entry, now + 1)
        self._time += 1
        return entry.embeddings if entry else None

    def put(self, key: int, embeddings: Vectors, cost_ns: float) -> None:
        """Takes them in, in place of what weighs least: counter times what it costs to make them."""
        self.drop(key)
        if embeddings.nbytes > self.bytes_max:
            return
        while self.bytes + embeddings.nbytes > self.bytes_max:
            self._evict()
        entry = _Entry(embeddings, max(cost_ns, 1.0), 0.0, 0)
        self._entries[key] = entry
        self.bytes += embeddings.nbytes
        # It was accessed at the time before: that is why it is made.
        self._weigh(key, entry, math.exp(self._log_decay))

    def drop(self, key: int) -> None:
        """Forgets one, as when it changed."""
        entry = self._entries.pop(key, None)
        if entry:
            self.bytes -= entry.embeddings.nbytes

    def drop_cheaper(self, cost_ns: float) -> None:
        """Forgets those that cost less to make."""
        for key in [key for key, entry in self._entries.items() if entry.cost_ns < cost_ns]:
            self.drop(key)

    def _weigh(self, key: int, entry: _Entry, counter: float) -> None:
        self._serial += 1
        entry.serial = self._serial
        entry.log_counter = math.log(counter) - self._time * self._log_decay
        weight = entry.log_counter + math.log(entry.cost_ns)
        heapq.heappush(self._heap, (weight, entry.serial, key))
        if len(self._heap) > _STALE_MAX * len(self._entries) + _STALE_FEW:
            self._heap = [one for one in self._heap if self._is_current(one[2], one[1])]
            heapq.heapify(self._heap)

    def _is_current(self, key: int, serial: int) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry.serial == serial

    def _evict(self) -> None:
        while True:
            _, serial, key = heapq.heappop(self._heap)
            if self._is_current(key, serial):
                self.drop(key)
                return
