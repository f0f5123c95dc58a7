"""Whether two engines gave the same: every row, whatever the order of rows and of adding up."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest

from scotfree.study.figures.result import Comparison, Result

_RELATIVE = 1e-12


def assert_same(ours: Result, theirs: Result) -> None:
    """All that a figure shows."""
    for name in ("coverage", "missing", "findings", "notes"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert [_value(one) for one in ours.comparisons] == [_close(_value(one)) for one in theirs.comparisons]
    assert ours.tables.keys() == theirs.tables.keys()
    for name, table in ours.tables.items():
        assert_same_table(table, theirs.tables[name])


def assert_same_table(ours: pa.Table, theirs: pa.Table) -> None:
    """Names, types, and rows sorted by what is no number with a fraction."""
    assert ours.schema.equals(theirs.schema), (ours.schema, theirs.schema)
    assert ours.num_rows == theirs.num_rows > 0
    for place, (one, other) in enumerate(zip_longest(_sorted(ours), _sorted(theirs))):
        assert one == {name: _close(value) for name, value in other.items()}, place


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    keys = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: [(row[name] is not None, row[name]) for name in keys])


def _value(comparison: Comparison) -> list[Any]:
    return list(vars(comparison).values())


def _close(value: Any) -> Any:
    if isinstance(value, list):
        return [_close(one) for one in value]
    return pytest.approx(value, rel=_RELATIVE, abs=0, nan_ok=True) if isinstance(value, float) else value
