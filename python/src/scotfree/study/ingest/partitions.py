"""The second step: each partition's records, merged; what partitions must know of each other, gathered.

STORE/scratch/merged-DIGEST/00017.parquet          calls, texts as codes, in the order of their ids
STORE/scratch/merged-DIGEST/00017-methods.parquet  how many calls of each method
STORE/scratch/merged-DIGEST/00017-gaps.parquet     the least gaps between each two places
STORE/scratch/merged-DIGEST/00017.json             counts and ledger; written last, from then on it counts

DIGEST is of the readings and the number of partitions: what it is made of is what it is valid for.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import ipc

from scotfree.study import schema
from scotfree.study.ingest import names, progress
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.merge import Counts, Merge
from scotfree.study.ingest.scratch import CODED, SPILL, TEXTS, Reading, Scratch, readings_in, write_json
from scotfree.study.trouble import Ledger, StudyError

TEXTS_MAX = 10_000_000
# What merged partitions hang on beside the readings: another number when their rules change.
_RULES = 3
_LOADED = CODED.append(pa.field("row", pa.int64()))


class Partitions:
    """The records of readings, in as many partitions as their number asks for."""

    def __init__(self, scratch: Scratch, readings: Sequence[Reading], limits: Limits, now_ns: int) -> None:
        self._scratch = scratch
        self._limits = limits
        self._now_ns = now_ns
        # The number of each reading among the inputs of the manifest.
        self._inputs = {reading.number: index for index, reading in enumerate(readings)}
        self._segments = [path for path in scratch.segments() if self._inputs.keys() & set(readings_in(path))]
        rows = sum(reading.rows.get("side", 0) for reading in readings)
        self.count = min(scratch.buckets, 1 << max(0, (rows - 1) // limits.partition_rows).bit_length())
        identity = json.dumps([[asdict(reading) for reading in readings], self.count, _RULES])
        self._folder = scratch.folder / f"merged-{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @cached_property
    def texts(self) -> pa.Array:
        """The texts of all segments, in order: a code's order is its text's, whatever was read first."""
        found = pc.unique(names.bare(self._written))
        if len(found) > TEXTS_MAX:
            raise StudyError(
                f"merge: more than {TEXTS_MAX:,} different names of services, methods, machines and errors",
                "names hold identifiers: take these out where the traces are made",
            )
        return found.take(pc.sort_indices(found))

    @cached_property
    def _codes(self) -> list[pa.Array]:
        """For each segment the codes of its texts."""
        return [pc.index_in(names.bare(_texts_of(path)), value_set=self.texts) for path in self._segments]

    @cached_property
    def _written(self) -> pa.Array:
        """The texts as inputs have them."""
        parts = [_texts_of(path) for path in self._segments]
        return pc.unique(pa.chunked_array([pa.array([], pa.string()), *parts]))

    @property
    def names_twice(self) -> int:
        """How many names of methods were written in two ways and are one."""
        return names.twice(self._written)

    def merge(self, *, quiet: bool) -> None:
        """Merges what is not yet merged."""
        for other in self._scratch.folder.glob("merged-*"):
            if other != self._folder:
                # Of inputs as they were: it will not be asked for again.
                shutil.rmtree(other)
        self._folder.mkdir(exist_ok=True)
        with progress.bar("merge", self.count, "part", quiet=quiet) as bar:
            for index in range(self.count):
                if not self._path(index, ".json").exists():
                    self._merge_one(index)
                    # Arrow would keep it for itself.
                    pa.default_memory_pool().release_unused()
                bar.update()

    def _merge_one(self, index: int) -> None:
        ledger = Ledger()
        with duckdb.connect(config=self._settings()) as connection:
            merge = Merge(connection, ledger, self._now_ns, pc.index(self.texts, schema.STATUS_OK).as_py())
            counts = merge.run(pa.RecordBatchReader.from_batches(_LOADED, self._records(index)))
            _copy(connection, "SELECT * FROM call ORDER BY hi, lo, span_id", self.calls(index))
            _copy(connection, _METHODS, self._path(index, "-methods.parquet"))
            _copy(connection, _GAPS, self._path(index, "-gaps.parquet"))
        done = {"counts": asdict(counts), "trouble": ledger.table().to_pylist()}
        write_json(self._path(index, ".json"), done)

    def _settings(self) -> dict[str, str | int | bool]:
        return {
            "memory_limit": self._limits.memory,
            "threads": self._limits.threads,
            "temp_directory": str(self._scratch.folder / SPILL),
            "preserve_insertion_order": False,
        }

    def _records(self, index: int) -> Iterator[pa.RecordBatch]:
        """The records of a partition, a segment at a time."""
        row = 0
        for path, codes in zip(self._segments, self._codes, strict=True):
            with ipc.open_file(pa.memory_map(str(path))) as file:
                batches = [file.get_batch(at) for at in range(index, self._scratch.buckets, self.count)]
            records = self._renumbered(pa.Table.from_batches(batches, CODED).combine_chunks(), codes)
            rows = pa.array(np.arange(row, row + records.num_rows))
            row += records.num_rows
            yield from records.append_column("row", rows).cast(_LOADED).to_batches()

    def _renumbered(self, records: pa.Table, codes: pa.Array) -> pa.Table:
        """Codes of all segments; inputs of the manifest; not what is of readings that broke off."""
        reading = records["input"].to_numpy()
        new = np.full(max([*self._inputs, *reading.max(initial=0, keepdims=True)]) + 1, -1, np.int32)
        new[list(self._inputs)] = list(self._inputs.values())
        records = records.set_column(CODED.get_field_index("input"), "input", pa.array(new[reading]))
        if (new[reading] < 0).any():
            records = records.filter(pa.array(new[reading] >= 0))
        for name in TEXTS:
            at = CODED.get_field_index(name)
            records = records.set_column(at, name, codes.take(records[name].combine_chunks()))
        return records

    def calls(self, index: int) -> Path:
        """The merged calls of a partition."""
        return self._path(index, ".parquet")

    def _path(self, index: int, suffix: str) -> Path:
        return self._folder / f"{index:05}{suffix}"

    def counts(self) -> Counts:
        """What became of all records."""
        total = Counts()
        for done in self._done():
            total.add(Counts(**done["counts"]))
        return total

    def ledger(self) -> Ledger:
        """The trouble of all partitions."""
        ledger = Ledger()
        for done in self._done():
            ledger.add_rows(done["trouble"])
        return ledger

    def _done(self) -> Iterator[dict[str, Any]]:
        for index in range(self.count):
            yield json.loads(self._path(index, ".json").read_bytes())

    def methods(self) -> pa.Table:
        """How many calls of each method, by partition."""
        return self._all("-methods.parquet")

    def gaps(self) -> pa.Table:
        """The least gaps between each two places, by partition."""
        return self._all("-gaps.parquet")

    def _all(self, suffix: str) -> pa.Table:
        tables = [pq.read_table(self._path(index, suffix)) for index in range(self.count)]
        # Promoted: whether a column may be null is said of each file by what is in it.
        return pa.concat_tables(tables, promote_options="default")


_METHODS = "SELECT service, method, count(*) AS calls FROM call GROUP BY ALL"
_GAPS = """
SELECT client_place, server_place, min(request_gap_ns) AS request_gap_ns, min(response_gap_ns) AS response_gap_ns
FROM call WHERE request_gap_ns IS NOT NULL AND client_place <> server_place GROUP BY ALL"""


def _copy(connection: duckdb.DuckDBPyConnection, query: str, to: Path) -> None:
    half = to.with_suffix(".half")
    connection.execute(f"COPY ({query}) TO '{str(half).replace(chr(39), chr(39) * 2)}' (FORMAT parquet)")
    half.rename(to)


def _texts_of(segment: Path) -> pa.Array:
    path = segment.with_name(segment.name.replace("segment", "texts"))
    with ipc.open_file(pa.memory_map(str(path))) as file:
        return file.read_all()["text"].combine_chunks()
