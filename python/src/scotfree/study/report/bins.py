"""Fewer rows for a page: columns of a heat map, points of a curve, digits of a number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# More columns than a page has pixels for show nothing.
COLUMNS_MAX = 300
_DIGITS = 4


def by_rank(table: pa.Table, values: Sequence[str], columns_max: int = COLUMNS_MAX) -> pa.Table:
    """Rows in order as at most that many columns: the median of each value, with the ranks from and to (from 1).

    Names are the first row's of a column: `service` and `method` where the table has them.
    """
    edges = np.unique(np.linspace(0, table.num_rows, min(columns_max, table.num_rows) + 1).astype(int))
    starts, ends = edges[:-1], edges[1:]
    found = {"rank": pa.array(starts + 1), "rank_to": pa.array(ends)}
    for name in ("service", "method"):
        if name in table.column_names:
            found[name] = table[name].take(pa.array(starts)).combine_chunks()
    for name in values:
        column = table[name].to_numpy(zero_copy_only=False).astype(float)
        parts = [column[start:end] for start, end in zip(starts, ends, strict=True)]
        found[name] = pa.array([_median(part) for part in parts], from_pandas=True)
    return pa.table(found)


def _median(values: np.ndarray) -> float:
    """The lower middle of those that are known: a value that occurred."""
    known = np.sort(values[~np.isnan(values)])
    return float(known[(len(known) - 1) // 2]) if len(known) else float("nan")


def distribution(values: pa.ChunkedArray, points_max: int = 200) -> pa.Table:
    """An empirical distribution function: `value`, and `share` of those that do not exceed it."""
    known = np.sort(pc.drop_null(values).to_numpy(zero_copy_only=False).astype(float))
    if len(known) == 0:
        return pa.table({"value": pa.array([], pa.float64()), "share": pa.array([], pa.float64())})
    picks = np.unique(np.linspace(0, len(known) - 1, min(points_max, len(known))).astype(int))
    return pa.table({"value": known[picks], "share": (picks + 1) / len(known)})


def thinned(table: pa.Table, rows_max: int) -> pa.Table:
    """Every n-th row, first and last among them."""
    if table.num_rows <= rows_max:
        return table
    return table.take(pa.array(np.unique(np.linspace(0, table.num_rows - 1, rows_max).astype(int))))


def columns(table: pa.Table) -> dict[str, list[object]]:
    """A table as lists by name, numbers with four significant digits: what goes into the page."""
    return {name: _rounded(table[name]) for name in table.column_names}


def _rounded(values: pa.ChunkedArray) -> list[object]:
    kind = values.type
    if pa.types.is_floating(kind):
        return [_round(value) for value in values.to_pylist()]
    if pa.types.is_timestamp(kind) or pa.types.is_dictionary(kind):
        return [None if value is None else str(value) for value in values.to_pylist()]
    return list(values.to_pylist())


def _round(value: float | None) -> float | int | None:
    # JSON knows neither infinities nor NaN.
    if value is None or not np.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 2**53 else short
