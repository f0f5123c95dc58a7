"""Columns in memory that read as an Ibis table does, so that a quantity is defined once (`quantities`)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


class Column:
    """A column with the arithmetic that quantities use: null if an operand is, division in floating point."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __add__(self, other: Column) -> Column:
        return Column(pc.add(self.values, other.values))

    def __sub__(self, other: Column) -> Column:
        return Column(pc.subtract(self.values, other.values))

    def __truediv__(self, other: Column) -> Column:
        return Column(pc.divide(_floats(self.values), _floats(other.values)))

    def nullif(self, value: int) -> Column:
        """Null where it is this value."""
        return Column(pc.if_else(pc.equal(self.values, value), None, self.values))


class Calls:
    """A partition's table whose columns are `Column`s."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Column:
        return Column(self._table[name])


def _floats(values: Any) -> Any:
    # The nearest, of whole numbers beyond those that floating point has all of, as an engine takes them.
    return values.cast(pa.float64(), safe=False)
