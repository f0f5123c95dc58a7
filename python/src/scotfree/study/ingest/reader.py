"""What a reader of a form is, and the rows that readers in Python build."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.trouble import Ledger

# Rows that a reader holds before it hands them on.
BATCH_ROWS_MAX = 50_000


@dataclass(frozen=True)
class Batch:
    """Rows of one relation: `side`, `metric` or `profile`, in that relation's schema."""

    relation: str
    rows: pa.Table
    # How many records of the input they come from; what was dropped is in the ledger.
    records: int


@dataclass
class Source:
    """One input, opened by its reader."""

    path: Path
    # Its number in the store's manifest.
    number: int
    ledger: Ledger
    # Called with the bytes read so far, of `path.stat().st_size`.
    progress: Callable[[int], None] = lambda _: None
    # Which columns are what, as the user says (`--map`).
    mapping: ColumnMap = field(default_factory=ColumnMap)


class Reader(Protocol):
    """One form of input."""

    # As `--form` names it.
    form: str

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether the file, of which `head` is the (decompressed) beginning, has this form."""

    def read(self, source: Source) -> Iterator[Batch]:
        """Its rows, in bounded memory. What cannot be read goes to the ledger; only I/O errors are raised."""


@runtime_checkable
class TableReader(Reader, Protocol):
    """A form of tables, whose columns may have any names."""

    def has(self, head: bytes, mapping: ColumnMap) -> bool:
        """Whether it is such a table and has a column that the mapping names."""


class Rows:
    """Rows under way, as columns. A column that is not given is null."""

    def __init__(self, relation: str, of: pa.Schema) -> None:
        self._relation = relation
        self._schema = of
        self._columns: dict[str, list[Any]] = {name: [] for name in of.names}
        self.count = 0

    def add(self, row: dict[str, Any]) -> None:
        """Takes a row."""
        for name, values in self._columns.items():
            values.append(row.get(name))
        self.count += 1

    def take(self) -> Batch:
        """What has come together; the rows begin anew."""
        arrays = [_array(values, self._schema.field(name).type) for name, values in self._columns.items()]
        batch = Batch(self._relation, pa.Table.from_arrays(arrays, schema=self._schema), self.count)
        self.__init__(self._relation, self._schema)  # type: ignore[misc]
        return batch


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode().cast(kind)
    return pa.array(values, kind)


def sides() -> Rows:
    """Rows of `side`."""
    return Rows("side", schema.SIDE)
