"""Quantiles of values that are in memory, per method: the kernel in Rust (crates/scotfree-study, rank.rs)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree import _native
from scotfree.study import schema
from scotfree.study.analysis import lending

Array = np.ndarray[Any, Any]


def nearest_rank(values: pa.Table, ps: Mapping[str, Array]) -> pa.Table:
    """The quantiles of `values` (method_id, value, weight), as `quantiles.weighted` and `quantiles.at` give them.

    `ps` says by name which p of each method, NaN for none. Columns: method_id, samples, weight, effective_n (R7),
    and each name; by method, of those with a value.
    """
    # Beyond all parts there is no quantile.
    parts = [np.where(np.isnan(p), schema.PARTS + 1, np.round(p * schema.PARTS)) for p in ps.values()]
    columns = _native.ranked(
        lending.integers(values["method_id"]),
        lending.floats(values["value"]),
        lending.weights(values["weight"]),
        lending.read_only(np.stack(parts, axis=1).astype(np.uint32).ravel()),
        len(ps),
    )
    kinds = (np.int32, np.int64, np.float64, np.float64, np.float64)
    method, samples, weight, squares, found = map(np.frombuffer, columns, kinds)
    effective = weight * weight / squares
    named = dict(zip(ps, found.reshape(-1, len(ps)).T, strict=True))
    return pa.table({"method_id": method, "samples": samples, "weight": weight, "effective_n": effective, **named})
