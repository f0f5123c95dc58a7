"""The engine on a cluster: Spark over the store's Parquet, which all its machines see under the same path.

The same expressions as elsewhere, compiled by Ibis. A kernel runs in a task per partition, by the same wheel: the
task reads its partition's folder whole, and its result travels as the bytes of an Arrow stream, types and all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from scotfree.study.engine import Kernel, relations
from scotfree.study.engine.relations import plain
from scotfree.study.store import Store

_PART = "part binary"


class SparkEngine:
    """Spark over one store."""

    name = "spark"
    is_local = False

    def __init__(self, store: Store, spark: Any) -> None:
        self._store = store
        self._spark = spark
        self._connection = ibis.pyspark.connect(spark)
        relations.open_all(self, store)

    def read_parquet(self, name: str, files: list[Path]) -> None:
        """See `relations.Opener.read_parquet`."""
        paths = [str(file.resolve()) for file in files]
        self._spark.read.parquet(*paths).createOrReplaceTempView(name)

    def table(self, name: str) -> Any:
        """See `Engine.table`."""
        return self._connection.table(name)

    def register(self, name: str, table: pa.Table) -> Any:
        """See `Engine.register`."""
        rows = table.cast(plain(table.schema))
        self._spark.createDataFrame(rows).createOrReplaceTempView(name)
        return self._connection.table(name)

    def arrow(self, expression: Any) -> pa.Table:
        """See `Engine.arrow`."""
        found = self._spark.sql(self._connection.compile(expression)).toArrow()
        return found.cast(expression.schema().to_pyarrow())

    def map_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> pa.Table:
        """See `Engine.map_partitions`."""
        return pa.concat_tables([result.empty_table(), *self.iter_partitions(columns, kernel, result)])

    def iter_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> Iterator[pa.Table]:
        """See `Engine.iter_partitions`."""
        folders = [str(folder.resolve()) for folder in self._store.partitions()]
        if not folders:
            return
        tasks = self._spark.sparkContext.parallelize([(folder,) for folder in folders], len(folders))
        parts = self._spark.createDataFrame(tasks, "folder string").mapInArrow(_Task(columns, kernel), _PART)
        for part in parts.toArrow()["part"]:
            yield pa.ipc.open_stream(part.as_buffer()).read_all().cast(result)


class _Task:
    """What a task does with the folders it is given."""

    def __init__(self, columns: Sequence[str], kernel: Kernel) -> None:
        self._columns = list(columns)
        self._kernel = kernel

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for folder in batch["folder"].to_pylist():
                calls = pq.read_table(Path(folder), columns=self._columns, partitioning=None)
                yield pa.record_batch({"part": [_stream(self._kernel(calls))]})


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
