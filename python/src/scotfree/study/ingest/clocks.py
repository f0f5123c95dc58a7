"""How far two machines' clocks are apart, from the fastest messages each way (study-spec 5.1; Cristian, NTP).

For clients on a and servers on b, with theta = clock of b - clock of a: a request takes start(server) -
start(client) - theta >= 0, a response end(client) - end(server) + theta >= 0. So every call bounds theta.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Column = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Offsets:
    """The interval of theta for each pair of places (low <= high numbers), sorted by pair."""

    pairs: Column
    low: Column
    high: Column

    def of(self, client: Column, server: Column) -> tuple[Column, Column, Mask]:
        """Of each call the interval of server's clock - client's clock, and whether there is one."""
        key = _key(np.minimum(client, server), np.maximum(client, server))
        pairs, lows, highs = self._padded()
        at = np.minimum(np.searchsorted(pairs, key), len(pairs) - 1)
        turned = client > server
        low = np.where(turned, -highs[at], lows[at])
        high = np.where(turned, -lows[at], highs[at])
        # One machine has one clock; of one service without machines it is not known which are meant.
        same = (client == server) & (client >= 0)
        low, high = np.where(same, 0, low), np.where(same, 0, high)
        known = same | ((pairs[at] == key) & (client != server) & (low <= high))
        return low, high, known

    def _padded(self) -> tuple[Column, Column, Column]:
        """With one more pair, that none is, so that there is always one to compare with."""
        none = np.iinfo(np.int64).max
        return np.append(self.pairs, none), np.append(self.low, 1), np.append(self.high, 0)


def offsets(gaps: pa.Table) -> Offsets:
    """From the least gaps: columns client_place, server_place, request_gap_ns, response_gap_ns; any order."""
    client, server, request, response = (
        gaps[name].to_numpy() for name in ("client_place", "server_place", "request_gap_ns", "response_gap_ns")
    )
    key = _key(np.minimum(client, server), np.maximum(client, server))
    pairs, at = np.unique(key, return_inverse=True)
    low = np.full(len(pairs), np.iinfo(np.int64).min)
    high = np.full(len(pairs), np.iinfo(np.int64).max)
    forth = client <= server
    np.minimum.at(high, at, np.where(forth, request, response))
    np.maximum.at(low, at, np.where(forth, -response, -request))
    return Offsets(pairs, low, high)


def split(tax: Column, request_gap: Column, low: Column, high: Column) -> tuple[Column, Column, Mask]:
    """Of each call the time before its application, how far that may be off, and whether it may be said at all.

    It may where the interval of theta is at most half of what is split.
    """
    bound = (high - low + 1) // 2
    request = request_gap - (low + (high - low) // 2)
    return np.clip(request, 0, np.maximum(tax, 0)), bound, 2 * (high - low) <= tax


def _key(low: Column, high: Column) -> Column:
    return (low.astype(np.int64) << 32) | (high.astype(np.int64) & 0xFFFFFFFF)
