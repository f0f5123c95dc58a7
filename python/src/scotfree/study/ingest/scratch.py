"""What an ingest under way keeps in the store's folder: records by partition, and which inputs are done.

STORE/scratch/plan.json               how many buckets
STORE/scratch/segment-000007.arrow    records of side, a batch per bucket (hash of the trace); texts as codes
STORE/scratch/texts-000007.arrow      the texts behind the codes of that segment
STORE/scratch/notes-000007.json       the readings (of whole inputs) that ended in that segment; written last
STORE/scratch/metric-000003-00001.parquet, profile-…   rows of other relations, by reading

Invariant: a reading counts only if its note is there, and then all its records are; `.half` files never count.
Records of readings that do not count are passed over by their `input` column.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from scotfree.study import schema
from scotfree.study.ingest.inputs import PLAN
from scotfree.study.store import Input, partitions_of, trace_words, write_table

SPILL = "spill"

TEXTS = [item.name for item in schema.RECORD if pa.types.is_dictionary(item.type)]
_WORDS = [pa.field("hi", pa.int64()), pa.field("lo", pa.int64())]
# `side` with the trace id as two words and texts as codes.
CODED = pa.schema(
    [*_WORDS, *[pa.field(f.name, pa.int32() if f.name in TEXTS else f.type) for f in list(schema.RECORD)[1:]]]
)


@dataclass
class Reading:
    """One input read to its end."""

    number: int
    path: str
    form: str
    bytes: int
    mtime_ns: int
    digest: str
    # Of what the user set for reading, such as a mapping of columns.
    options: str
    # Rows of side, metric and profile.
    rows: dict[str, int] = field(default_factory=dict)
    # Records of side that are merged: those that could not be are in the trouble.
    sides: int = 0
    trouble: list[dict[str, Any]] = field(default_factory=list)


class Scratch:
    """The folder, opened by the one process that holds the store's lock."""

    def __init__(self, folder: Path, buckets: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for half in folder.glob("*.half"):
            half.unlink()
        # What a killed process spilled is nobody's.
        shutil.rmtree(folder / SPILL, ignore_errors=True)
        self.buckets = self._plan(buckets)
        self.readings = [reading for path in sorted(folder.glob("notes-*.json")) for reading in _notes(path)]

    def _plan(self, buckets: int) -> int:
        """The number of buckets of the first run holds for all that go on with it."""
        path = self.folder / PLAN
        if not path.exists():
            write_json(path, {"buckets": buckets})
        return int(json.loads(path.read_bytes())["buckets"])

    def segments(self) -> list[Path]:
        """Whole segments."""
        return sorted(self.folder.glob("segment-*.arrow"))

    def next_reading(self) -> int:
        """A number that nothing here has, also of readings that broke off."""
        others = [int(path.stem.split("-")[1]) for path in self.folder.glob("*.parquet")]
        used = [number for path in self.segments() for number in readings_in(path)]
        return max([-1, *others, *used, *(reading.number for reading in self.readings)]) + 1

    def files(self, relation: str, reading: int) -> list[Path]:
        """Rows of another relation than side, of one reading."""
        return sorted(self.folder.glob(f"{relation}-{reading:06}-*.parquet"))


def is_over(folder: Path, inputs: Sequence[Input]) -> bool:
    """Whether all that was read to its end there is in a store of these inputs."""
    known = {(one.path, one.mtime_ns, one.digest, one.options) for one in inputs}
    readings = (reading for path in folder.glob("notes-*.json") for reading in _notes(path))
    return all((one.path, one.mtime_ns, one.digest, one.options) in known for one in readings)


def discard(folder: Path) -> None:
    """Removes it, and what an earlier removal left. By another name first: a part of it must not pass for all."""
    over = folder.with_name(folder.name + ".over")
    shutil.rmtree(over, ignore_errors=True)
    if folder.exists():
        folder.rename(over)
        shutil.rmtree(over)


class Writer:
    """Takes records and writes them by segments."""

    def __init__(self, scratch: Scratch, segment_rows: int) -> None:
        self._scratch = scratch
        self._segment_rows = segment_rows
        self._held: list[pa.Table] = []
        self._rows = 0
        self._done: list[Reading] = []
        taken = [*scratch.segments(), *scratch.folder.glob("notes-*.json")]
        self._segment = max([-1, *(int(path.stem.split("-")[1]) for path in taken)]) + 1

    def add(self, rows: pa.Table) -> None:
        """Records of side."""
        self._held.append(rows)
        self._rows += rows.num_rows
        if self._rows >= self._segment_rows:
            self.flush()

    def add_other(self, relation: str, rows: pa.Table, reading: int) -> None:
        """Rows of another relation."""
        count = len(self._scratch.files(relation, reading))
        write_table(rows, self._scratch.folder / f"{relation}-{reading:06}-{count:05}.parquet")

    def done(self, reading: Reading) -> None:
        """The reading is at its end. It counts from the next flush on."""
        self._done.append(reading)

    def flush(self) -> None:
        """Writes what is held, then the notes of readings that ended in it."""
        if not self._held and not self._done:
            return
        if self._held:
            _write_segment(self._held, self._scratch, self._segment)
        if self._done:
            notes = [asdict(reading) for reading in self._done]
            write_json(self._scratch.folder / f"notes-{self._segment:06}.json", notes)
        self._scratch.readings += self._done
        self._held, self._rows, self._done = [], 0, []
        self._segment += 1


def _write_segment(held: Sequence[pa.Table], scratch: Scratch, number: int) -> None:
    rows, texts = coded(pa.concat_tables(held))
    words = np.stack([rows["hi"].to_numpy(), rows["lo"].to_numpy()], axis=1).view(np.uint64)
    bucket = partitions_of(words, scratch.buckets)
    order = np.argsort(bucket, kind="stable")
    bounds = np.searchsorted(bucket[order], np.arange(scratch.buckets + 1))
    rows = rows.take(pa.array(order)).combine_chunks()
    slices = [rows.slice(low, high - low) for low, high in itertools.pairwise(bounds)]
    whole = pa.table({"text": texts})
    _write_arrow(scratch.folder / f"texts-{number:06}.arrow", whole.schema, whole.to_batches())
    readings = ",".join(str(reading) for reading in pc.unique(rows["input"]).to_pylist())
    schema_ = CODED.with_metadata({"readings": readings})
    _write_arrow(scratch.folder / f"segment-{number:06}.arrow", schema_, [_one_batch(part) for part in slices])


def readings_in(segment: Path) -> list[int]:
    """The readings that have records in a segment."""
    with ipc.open_file(pa.memory_map(str(segment))) as file:
        return [int(number) for number in file.schema.metadata[b"readings"].split(b",") if number]


def _one_batch(part: pa.Table) -> pa.RecordBatch:
    """Batch number b of a segment is bucket b, also if that is empty."""
    arrays = [column.combine_chunks() for column in part.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=CODED)


def coded(rows: pa.Table) -> tuple[pa.Table, pa.Array]:
    """Texts as codes of one list for all columns."""
    rows = rows.unify_dictionaries().combine_chunks()
    columns = {name: _whole(rows[name]) for name in TEXTS}
    values = pa.concat_arrays([column.dictionary for column in columns.values()])
    encoded = values.dictionary_encode()
    new = encoded.indices.to_numpy()
    offset = 0
    arrays: dict[str, pa.Array] = {}
    for name, column in columns.items():
        arrays[name] = pc.take(pa.array(new[offset : offset + len(column.dictionary)]), column.indices)
        offset += len(column.dictionary)
    words = trace_words(_whole(rows["trace_id"])).view(np.int64)
    arrays |= {"hi": pa.array(words[:, 0]), "lo": pa.array(words[:, 1])}
    table = pa.table(
        {name: arrays.get(name, rows[name] if name in rows.column_names else None) for name in CODED.names}
    )
    return table.cast(CODED), encoded.dictionary


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _write_arrow(path: Path, of: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
    half = path.with_suffix(".half")
    with ipc.new_file(half, of, options=ipc.IpcWriteOptions(compression="lz4")) as file:
        for batch in batches:
            file.write_batch(batch)
    half.rename(path)


def write_json(path: Path, content: Any) -> None:
    """Writes it whole or not at all."""
    half = path.with_suffix(".half")
    with half.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)


def _notes(path: Path) -> Iterator[Reading]:
    for entry in json.loads(path.read_bytes()):
        yield Reading(**entry)
