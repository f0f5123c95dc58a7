"""What tests of readers share: an input from bytes, and all that a reader makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.reader import Reader, Source
from scotfree.study.trouble import Ledger

FIXTURES = Path(__file__).parent / "fixtures"
INPUT = 7


@dataclass
class Read:
    """All rows of an input, and its ledger."""

    table: pa.Table
    ledger: Ledger
    # What batches say that they come from, and what was dropped.
    records: int

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows without what is null."""
        return [{key: value for key, value in row.items() if value is not None} for row in self.table.to_pylist()]

    @property
    def troubles(self) -> dict[str, int]:
        """How often each reason occurs, of records that were dropped."""
        return {row["reason"]: row["count"] for row in self.ledger.table().to_pylist() if not row["is_kept"]}

    @property
    def notes(self) -> dict[str, int]:
        """How often each reason occurs, of records that were kept."""
        return {row["reason"]: row["count"] for row in self.ledger.table().to_pylist() if row["is_kept"]}


def read(reader: Reader, path: Path, mapping: ColumnMap | None = None) -> Read:
    """Reads an input whole."""
    ledger = Ledger()
    batches = list(reader.read(Source(path, INPUT, ledger, mapping=mapping or ColumnMap())))
    tables = [batch.rows for batch in batches] or [schema.SIDE.empty_table()]
    records = sum(batch.records for batch in batches) + ledger.dropped()
    return Read(pa.concat_tables(tables), ledger, records)


def read_bytes(reader: Reader, folder: Path, text: bytes) -> Read:
    """Reads an input that is given as bytes."""
    path = folder / "input"
    path.write_bytes(text)
    return read(reader, path)
