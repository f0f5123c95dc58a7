"""The embedded engine: DuckDB over the store's Parquet, in this process and within a bound of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ibis
import pyarrow as pa
import pyarrow.parquet as pq

from scotfree.study.engine import Kernel, relations, spill
from scotfree.study.store import Store


class DuckEngine:
    """DuckDB over one store."""

    name = "duckdb"
    is_local = True

    def __init__(self, store: Store, *, memory: str = "2GB", threads: int | None = None) -> None:
        self._store = store
        self._threads = threads
        # Columns of dictionaries become plain ones: enumerations of different files would not join.
        settings: dict[str, Any] = {
            "memory_limit": memory,
            "temp_directory": str(spill.folder(store.folder)),
            "preserve_insertion_order": False,
        }
        if threads is not None:
            settings["threads"] = threads
        self._connection = ibis.duckdb.connect(**settings)
        # Tables by name: to ask DuckDB for a table's columns and read their types takes as long as a small query.
        self._tables: dict[str, Any] = {}
        relations.open_all(self, store)

    def read_parquet(self, name: str, files: list[Path]) -> None:
        """See `relations.Opener.read_parquet`."""
        self._tables[name] = self._connection.read_parquet([str(file) for file in files], table_name=name)

    def table(self, name: str) -> Any:
        """See `Engine.table`."""
        if name not in self._tables:
            self._tables[name] = self._connection.table(name)
        return self._tables[name]

    def register(self, name: str, table: pa.Table) -> Any:
        """See `Engine.register`."""
        # Ibis' own way drops a view by an empty name, which DuckDB 2.0 refuses.
        raw = self._connection.con
        raw.register("incoming", table)
        raw.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM incoming')
        raw.unregister("incoming")
        self._tables.pop(name, None)
        return self.table(name)

    def arrow(self, expression: Any) -> pa.Table:
        """See `Engine.arrow`."""
        return self._connection.to_pyarrow(expression)

    def map_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> pa.Table:
        """See `Engine.map_partitions`."""
        return pa.concat_tables([result.empty_table(), *self.iter_partitions(columns, kernel, result)])

    def iter_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> Iterator[pa.Table]:
        """See `Engine.iter_partitions`: in order, with no more results waiting than threads."""

        def run(folder: Path) -> pa.Table:
            return kernel(pq.read_table(folder, columns=list(columns), partitioning=None, use_threads=False))

        threads = self._threads or 2
        with ThreadPoolExecutor(threads) as pool:
            running: deque[Future[pa.Table]] = deque()
            for folder in self._store.partitions():
                if len(running) > threads:
                    yield running.popleft().result()
                running.append(pool.submit(run, folder))
            while running:
                yield running.popleft().result()
