"""Trees as columns: `parent[n]` is the row of the parent of row n, or -1. No loops over rows, no recursion.

Invariant: whatever the rows point at, every function ends, after at most log2(rows) + 1 passes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Rows = np.ndarray[Any, np.dtype[np.signedinteger[Any]]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

NONE = -1


def rings(parent: Rows) -> Mask:
    """Which rows are their own ancestors."""
    hop = _with_end(parent)
    end = len(parent)
    # After as many steps as there are rows all have come to the end, but for those that come to a ring: and on a
    # ring a step is a permutation, so that the places where those stand are just the rings.
    for _ in range(max(1, end).bit_length() + 1):
        hop = hop[hop]
        if (hop == end).all():
            return np.zeros(end, np.bool_)
    found = np.zeros(end + 1, np.bool_)
    found[hop] = True
    return found[:end]


def settle(hop: Rows) -> Rows:
    """Where each row comes to, following `hop` until it stays or ends (NONE). No rings but of one row."""
    at = _with_end(hop)
    end = len(hop)
    for _ in range(max(1, end).bit_length() + 1):
        further = at[at]
        if (further == at).all():
            break
        at = further
    return np.where(at == end, NONE, at)[:end]


def _with_end(parent: Rows) -> Rows:
    """One more row, that stays where it is, for those that have none."""
    end = len(parent)
    return np.append(np.where(parent < 0, end, parent), end)
