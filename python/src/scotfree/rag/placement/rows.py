"""The file of exact values: of each passage a row of whole numbers of 8 bits, and their scale.

```text
  0 magic 8  version 4  dimensions 4  held 4  rows 4  snapshot 16  numbers' CRC-32 4  header's CRC-32 4
 64 numbers: rows x 4, which passage a row is; `held` of them are for memory, then the others, both in order
    rows: rows x (scale 4, CRC-32 4, dimensions x 1)
```
Numbers are little-endian. A row's checksum is of its passage's number, too: no row is taken for another's. Rows
are checked as they are read, so that to open a file is to read its numbers and what is held in memory.

A value is its whole number times the row's scale, wrong by at most half a scale. The scale is max |v| / 127: of
embeddings of length one some 0.002 at most, so that an inner product with a question of length one, whose standard
error is scale / sqrt(12), is wrong by less than 0.003 (five standard errors).

Invariant: a file is whole or refused. It is written beside its place, synced and renamed, and never changed.
"""

from __future__ import annotations

import hashlib
import os
import struct
import weakref
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree import _native
from scotfree.rag.damage import REMADE
from scotfree.rag.embed.embedder import Vectors
from scotfree.rag.lending import lent
from scotfree.rag.trouble import Damaged, RagError

_MAGIC: Final = b"SCOTEXA\0"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<8sIIII16sI")
_CHECK: Final = struct.Struct("<I")
_BODY: Final = 64
_LARGEST: Final = 127
# Rows that are in memory together where all are looked at.
_MANY: Final = 8_192
# What a snapshot's header takes: its counts, the model's digest and the checksum of all that follows.
_SNAPSHOT_HEADER: Final = 128

Rows = np.ndarray[Any, Any]
Numbers = np.ndarray[Any, np.dtype[np.uint32]]


def row_bytes(dimensions: int) -> int:
    """What a passage's row takes in the file and in memory, its number included."""
    return 4 + _row(dimensions).itemsize


def identity(snapshot: Path) -> bytes:
    """16 bytes that no other snapshot has."""
    with snapshot.open("rb") as file:
        return hashlib.blake2b(file.read(_SNAPSHOT_HEADER), digest_size=16).digest()


def rounded(numbers: Sequence[int] | Numbers, vectors: Vectors) -> Rows:
    """The rows of passages: their vectors (passages x dimensions) as the file has them."""
    rows = np.zeros(len(vectors), _row(vectors.shape[1]))
    greatest = np.abs(vectors).max(axis=1, initial=0)
    rows["scale"] = np.where(greatest > 0, greatest / _LARGEST, 1)
    rows["values"] = np.rint(vectors / rows["scale"][:, None])
    for number, row in zip(numbers, rows, strict=True):
        row["check"] = _checksum(int(number), row)
    return rows


def restored(rows: Rows) -> Vectors:
    """The vectors of rows."""
    found: Vectors = rows["values"].astype(np.float32) * rows["scale"][:, None]
    return found


def of_length_one(vectors: Vectors) -> Vectors:
    """The same vectors (a row each) at length one: those of rows are rounded."""
    lengths: Vectors = np.linalg.norm(vectors, axis=1, keepdims=True)
    found: Vectors = vectors / lengths
    return found


def write(path: Path, snapshot: bytes, held: Numbers, others: Numbers, batches: Iterable[Rows]) -> None:
    """Writes a file for a snapshot of that identity: rows of all `held`, then of all others, some at a time."""
    numbers = np.concatenate([held, others]).astype("<u4")
    half = path.with_suffix(".half")
    count = 0
    with half.open("wb") as file:
        # The header is last: until then it is no such file.
        file.write(bytes(_BODY))
        file.write(numbers.tobytes())
        dimensions = 0
        for rows in batches:
            dimensions = rows.dtype["values"].shape[0]
            count += len(rows)
            file.write(rows.tobytes())
        assert count == len(numbers), f"{count} rows of {len(numbers)}"
        file.seek(0)
        file.write(_head(dimensions, len(held), numbers, snapshot))
        file.flush()
        os.fsync(file.fileno())
    half.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Exact:
    """A file of exact values, open; safe to be read by several threads."""

    def __init__(self, path: Path, snapshot: bytes | None, dimensions: int) -> None:
        """Opens it, and takes what is held into memory; a `RagError` says what is wrong with it.

        `snapshot` is that which it has to be of; nothing, where that is lost.
        """
        self.path = path
        self._row = _row(dimensions)
        # Read and not mapped: a disk that fails is an error, and not the process' death.
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.close = weakref.finalize(self, os.close, self._file)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)
        try:
            self.file_bytes, held = self._opened(snapshot, dimensions)
            self._held: Rows = self._read(0, held)
            for place in range(held):
                self._check(place, self._held[place])
            start = _BODY + self.numbers.nbytes
            memory = self._held.view(np.uint8)
            self._native = _native.Rows(path, start, dimensions, lent(self.numbers), lent(memory))
        except (RagError, OSError):
            self.close()
            raise

    @property
    def memory_bytes(self) -> int:
        """What it takes while it is open: passages' numbers, and the rows that are held."""
        return self.numbers.nbytes + self._held.nbytes

    def rows(self, numbers: Sequence[int]) -> tuple[list[int], Rows]:
        """Of passages those that it has, and their rows; a `RagError` says that one is damaged."""
        places = self._places(np.asarray(numbers, np.uint32))
        known = [(number, int(place)) for number, place in zip(numbers, places, strict=True) if place >= 0]
        rows = np.zeros(len(known), self._row)
        for at, (_, place) in enumerate(known):
            rows[at] = self._one(place)
        return [number for number, _ in known], rows

    def whole(self, numbers: Sequence[int]) -> tuple[list[int], Rows]:
        """Of passages those that it has and that are not damaged, and their rows."""
        found: dict[int, Any] = {}
        for number, place in zip(numbers, self._places(np.asarray(numbers, np.uint32)), strict=True):
            with suppress(RagError):
                if place >= 0:
                    found[number] = self._one(int(place))
        return list(found), np.array(list(found.values()), self._row)

    def vectors(self, numbers: Sequence[int]) -> dict[int, Vectors]:
        """Of passages those that it has, with their vectors."""
        known, rows = self.rows(numbers)
        return dict(zip(known, restored(rows), strict=True))

    def products(self, numbers: Sequence[int], vector: Vectors) -> tuple[list[int], list[float]]:
        """Of passages those that it has, and their inner products with a vector."""
        with self._reading():
            return self._native.products(numbers, lent(vector))

    def refine(self, search: _native.Search, vector: Vectors, most: int) -> tuple[list[int], list[int]]:
        """As `_native.Search.refine`."""
        with self._reading():
            return search.refine(self._native, lent(vector), most)

    def parts(self) -> Iterator[tuple[Numbers, Vectors]]:
        """All passages that it has, some at a time, with a row for each."""
        for at in range(0, len(self.numbers), _MANY):
            rows = self._read(at, min(_MANY, len(self.numbers) - at))
            yield self.numbers[at : at + len(rows)], restored(rows)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            raise self._refused(str(error)) from None

    def has(self, numbers: Sequence[int] | Numbers) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Of each passage whether it has a row."""
        found: np.ndarray[Any, np.dtype[np.bool_]] = self._places(np.asarray(numbers, np.uint32)) >= 0
        return found

    def damages(self) -> list[str]:
        """The first row that is not as it was written, in words; none: all are."""
        try:
            for at in range(0, len(self.numbers), _MANY):
                for place, row in enumerate(self._read(at, min(_MANY, len(self.numbers) - at)), at):
                    self._check(place, row)
        except RagError as error:
            return [str(error)]
        return []

    def cool(self) -> None:
        """Has the kernel forget what it keeps of the file: the next reads are the disk's."""
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)

    def _opened(self, snapshot: bytes | None, dimensions: int) -> tuple[int, int]:
        """How many bytes it has, and how many rows are held."""
        size = os.fstat(self._file).st_size
        head = os.pread(self._file, _BODY, 0)
        if len(head) < _BODY or not head.startswith(_MAGIC):
            raise self._refused("it is no file of exact values")
        _, version, width, held, count, of, checksum = _HEADER.unpack_from(head)
        if version != _VERSION:
            raise self._refused(f"it is of version {version}, this reads {_VERSION}")
        if _CHECK.unpack_from(head, _HEADER.size) != (zlib.crc32(head[: _HEADER.size]),):
            raise self._refused("its header is damaged")
        if count and width != dimensions:
            raise self._refused(f"its rows have {width} numbers, and embeddings now have {dimensions}")
        if snapshot not in (None, of):
            raise self._refused("it belongs to another snapshot")
        if held > count or size != _BODY + count * row_bytes(dimensions):
            raise self._refused(f"{count} rows do not make its {size} bytes")
        numbers = os.pread(self._file, 4 * count, _BODY)
        if zlib.crc32(numbers) != checksum:
            raise self._refused("its passages' numbers are damaged")
        self.numbers: Numbers = np.frombuffer(numbers, "<u4")
        return size, held

    def _places(self, numbers: Numbers) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Of each passage its row, or -1."""
        found = np.full(len(numbers), -1, np.int64)
        for start, end in ((0, len(self._held)), (len(self._held), len(self.numbers))):
            part = self.numbers[start:end]
            if not len(part):
                continue
            places = np.minimum(np.searchsorted(part, numbers), len(part) - 1)
            found = np.where(part[places] == numbers, start + places, found)
        return found

    def _one(self, place: int) -> Any:
        if place < len(self._held):
            return self._held[place]
        row = self._read(place, 1)[0]
        self._check(place, row)
        return row

    def _read(self, place: int, count: int) -> Rows:
        size = self._row.itemsize
        start = _BODY + self.numbers.nbytes + place * size
        data = os.pread(self._file, count * size, start)
        if len(data) != count * size:
            raise self._refused(f"it ends in row {place + len(data) // size}")
        return np.frombuffer(data, self._row)

    def _check(self, place: int, row: Any) -> None:
        number = int(self.numbers[place])
        if row["check"] != _checksum(number, row):
            raise self._refused(f"the row of passage {number} is damaged")

    def _refused(self, reason: str) -> Damaged:
        return Damaged(
            f"read exact values: {self.path}: {reason}",
            f"{REMADE}; until then remove that file, and what it held is embedded again by searches",
        )


def _row(dimensions: int) -> np.dtype[Any]:
    return np.dtype([("scale", "<f4"), ("check", "<u4"), ("values", "i1", (dimensions,))])


def _checksum(number: int, row: Any) -> int:
    return zlib.crc32(row["values"].tobytes(), zlib.crc32(row["scale"].tobytes(), zlib.crc32(_CHECK.pack(number))))


def _head(dimensions: int, held: int, numbers: Numbers, snapshot: bytes) -> bytes:
    fields = _HEADER.pack(
        _MAGIC, _VERSION, dimensions, held, len(numbers), snapshot, zlib.crc32(numbers.tobytes())
    )
    return fields + _CHECK.pack(zlib.crc32(fields))
