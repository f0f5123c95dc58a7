"""Parquet of any shape, by its columns' names or a mapping of them: see `tables`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from scotfree.study.ingest import tables
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Source

_MAGIC: Final = b"PAR1"
_SAMPLED: Final = 200


class Parquet:
    """See the module."""

    form = "parquet"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the first bytes."""
        return head.startswith(_MAGIC)

    def read(self, source: Source) -> Iterator[Batch]:
        """Row group by row group."""
        try:
            with pq.ParquetFile(source.path) as file:
                yield from _read(file, source)
        except (pa.ArrowException, OSError) as error:
            source.ledger.note(
                source.number, "the file is damaged; nothing more was read", detail=str(error)[:200]
            )


def _read(file: pq.ParquetFile, source: Source) -> Iterator[Batch]:
    plan = tables.plan(file.schema_arrow.names, _sample(file), source.mapping, source.path)
    tables.note(plan, source)
    first, size = 0, source.path.stat().st_size
    for batch in file.iter_batches(BATCH_ROWS_MAX, columns=plan.theirs):
        yield from tables.rows(plan, batch, first, source)
        first += batch.num_rows
        source.progress(size * first // file.metadata.num_rows)


def _sample(file: pq.ParquetFile) -> dict[str, list[Any]]:
    """The first rows, of columns whose values can tell what they are."""
    flat = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
    batch = next(file.iter_batches(_SAMPLED, columns=flat), None) if flat else None
    return {} if batch is None else {name: _told(batch.column(name)) for name in batch.schema.names}


def _told(values: pa.Array) -> list[Any]:
    """Dates as texts, durations with their unit: Python has neither so fine."""
    if pa.types.is_timestamp(values.type):
        return [str(value) for value in values.cast(pa.timestamp(values.type.unit)).cast(pa.string()).to_pylist()]
    if pa.types.is_duration(values.type):
        return [f"{value} {values.type.unit}" for value in values.cast(pa.int64()).to_pylist()]
    return list(values.to_pylist())
