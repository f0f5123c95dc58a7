"""The store: a folder of Parquet with what was read, and a manifest that says of what.

STORE/store.json                      the manifest; written last, by rename
STORE/span/partition=00017/*.parquet  calls, by hash of their trace: a trace never crosses a partition
STORE/metric/*.parquet                series of metrics
STORE/profile/*.parquet               stacks with weights
STORE/methods.parquet                 the method behind each `method_id`
STORE/trouble.parquet                 what could not be taken as it was, and why
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.trouble import StudyError

# Of the folder's layout and the relations' columns.
VERSION = 2
MANIFEST = "store.json"
# What a report's folder of aggregates is known by.
INDEX = "index.json"
AGGREGATES = ".parquet"
# Parquet's own compression: half the bytes of none, at several hundred MB/s.
COMPRESSION = "zstd"


@dataclass(frozen=True)
class Input:
    """One file that was read."""

    path: str
    form: str
    bytes: int
    # Rows of side, metric and profile, and records that its reader dropped.
    records: int
    # What it is known again by, with its size: see `ingest.inputs`.
    mtime_ns: int = 0
    digest: str = ""
    # What the user set for its reading.
    options: str = ""


@dataclass
class Manifest:
    """What a store holds."""

    version: int = VERSION
    partitions: int = 0
    inputs: list[Input] = field(default_factory=list)
    # Records of sides, and what became of each: records_in == merged + internal + dropped (asserted).
    records_in: int = 0
    merged: int = 0
    internal: int = 0
    dropped: int = 0
    # Calls: of some two records are merged, of some there is one.
    spans: int = 0


Stamp = tuple[int, int, int]


def _stamp(status: os.stat_result) -> Stamp:
    """What a file that was put in another's place differs in."""
    return status.st_ino, status.st_mtime_ns, status.st_size


class Store:
    """A store that is complete, opened for reading."""

    def __init__(self, folder: Path, manifest: Manifest, stamp: Stamp) -> None:
        self.folder = folder
        self.manifest = manifest
        # Of the manifest that was opened: see `at_rest`.
        self._stamp = stamp

    @classmethod
    def open(cls, folder: Path, *, older: bool = False) -> Store:
        """Opens it; a `StudyError` says what is wrong if it is none. `older`: also one that is to be made anew."""
        path = folder / MANIFEST
        try:
            with path.open("rb") as file:
                stamp, text = _stamp(os.fstat(file.fileno())), json.loads(file.read())
        except FileNotFoundError:
            raise StudyError(
                f"open {folder}: it holds no {MANIFEST}, so no input was read into it",
                "ingest first: python -m scotfree.study ingest DATA… --store FOLDER",
            ) from None
        except ValueError as error:
            raise StudyError(
                f"open {folder}: {MANIFEST} is no JSON: {error}", "remove the folder and ingest again"
            ) from None
        version = text.get("version") if isinstance(text, dict) else None
        is_older = older and isinstance(version, int) and 0 < version < VERSION
        if version != VERSION and not is_older:
            raise StudyError(
                f"open {folder}: it is of version {version}, this reads {VERSION}",
                "ingest again into another folder",
            )
        try:
            inputs = [Input(**entry) for entry in text.pop("inputs")]
            return cls(folder, Manifest(inputs=inputs, **text), stamp)
        except (KeyError, TypeError) as error:
            raise StudyError(
                f"open {folder}: {MANIFEST} is damaged: {error}", "remove the folder and ingest again"
            ) from None

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """What is read within is of one store: a `StudyError` if another was put in its place meanwhile.

        Whoever writes a store removes its manifest first, so what was read before that is of the one opened.
        """
        try:
            yield
        except StudyError:
            raise
        except Exception as error:
            if self._is_at_rest():
                raise
            raise self._written() from error
        if not self._is_at_rest():
            raise self._written()

    def _is_at_rest(self) -> bool:
        try:
            return _stamp((self.folder / MANIFEST).stat()) == self._stamp
        except OSError:
            return False

    def _written(self) -> StudyError:
        return StudyError(
            f"read {self.folder}: it was written to or removed meanwhile",
            "run the same command again when it is at rest",
        )

    def partitions(self) -> list[Path]:
        """The folders of calls, in order."""
        return sorted((self.folder / "span").glob("partition=*"))

    def files(self, relation: str) -> list[Path]:
        """The Parquet files of `span`, `metric` or `profile`."""
        return sorted((self.folder / relation).rglob("*.parquet"))

    def read(self, name: str) -> pa.Table:
        """A small relation whole: `methods` or `trouble`."""
        return pq.read_table(self.folder / f"{name}.parquet")

    def noted(self, reason: str) -> int:
        """How often `trouble` has a reason."""
        return sum(row["count"] for row in self.read("trouble").to_pylist() if row["reason"] == reason)

    def iter_partitions(self, columns: list[str]) -> Iterator[pa.Table]:
        """These columns of the calls, a partition at a time: each holds its traces whole."""
        for folder in self.partitions():
            yield pq.read_table(folder, columns=columns, partitioning=None)


def partition_folder(store: Path, index: int) -> Path:
    """Where the calls of a partition lie."""
    return store / "span" / f"partition={index:05}"


Words = np.ndarray[Any, np.dtype[np.uint64]]


def trace_words(trace_ids: pa.Array) -> Words:
    """Trace ids as two words of 64 bits each, first bytes first; a row per id."""
    start = trace_ids.offset * 2
    words = np.frombuffer(trace_ids.buffers()[1], np.uint64)
    return words[start : start + 2 * len(trace_ids)].reshape(-1, 2)


def partitions_of(trace_ids: Words, partitions: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The partition of each trace id, spread evenly even where ids are counters or half of each is zero."""
    mixed = trace_ids[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ trace_ids[:, 1]
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    return ((mixed ^ mixed >> np.uint64(31)) % np.uint64(partitions)).astype(np.int64)


def _span_layout() -> dict[str, Any]:
    dictionaries = [field.name for field in schema.SPAN if pa.types.is_dictionary(field.type)]
    repeated = ["trace_id", "method_id", "sample_weight", *dictionaries]
    integers = {field.name for field in schema.SPAN if pa.types.is_integer(field.type)} - set(repeated)
    # Ids are random: there is nothing to pack.
    packed = integers - {"span_id", "parent_id"}
    return {
        "compression": {name: "none" if name in integers else COMPRESSION for name in schema.SPAN.names},
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        "use_dictionary": repeated,
        # The smallest and greatest value of a row group: only these columns are ever asked for a range.
        "write_statistics": ["start_ns", "method_id"],
    }


# How a ParquetWriter lays out calls: integers packed to the bits they need, not compressed. A tenth larger than
# zstd alone, written in half of the time, read in a third (DuckDB, eleven columns of 0.8 M calls).
SPAN_LAYOUT: Final = _span_layout()


def write_table(table: pa.Table, path: Path) -> None:
    """Writes a table as one file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_suffix(".half")
    pq.write_table(table, half, compression=COMPRESSION)
    half.rename(path)


def write_manifest(store: Path, manifest: Manifest) -> None:
    """The last step: from now on the store is complete."""
    half = store / (MANIFEST + ".half")
    with half.open("w") as file:
        json.dump(asdict(manifest), file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    half.rename(store / MANIFEST)


def empty(relation: pa.Schema) -> pa.Table:
    """No row of a relation."""
    return relation.empty_table()


__all__ = [
    "SPAN_LAYOUT",
    "Input",
    "Manifest",
    "Store",
    "empty",
    "partition_folder",
    "schema",
    "write_manifest",
    "write_table",
]
