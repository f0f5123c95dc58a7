"""Records of sides as short Python, a form that reads them, and the ingest of such."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.reader import Batch, Source, sides
from scotfree.study.ingest.run import ingest
from scotfree.study.schema import Kind
from scotfree.study.store import Store

NOW = 1_800_000_000 * 10**9
START = 1_700_000_000 * 10**9
# So small that a handful of records is several segments and partitions.
SMALL = Limits(memory="200MB", threads=1, segment_rows=7, partition_rows=16)

Record = dict[str, Any]


def record(kind: Kind, span: int, parent: int | None = None, **more: Any) -> Record:
    """One side's record; times are from START."""
    row = {
        "trace_id": (1).to_bytes(16, "big").hex(),
        "span_id": span,
        "parent_id": parent,
        "kind": int(kind),
        "is_shared": False,
        "start_ns": START,
        "duration_ns": 1000,
        "service": "shop",
        "name": "Get",
        "status": schema.STATUS_OK,
    }
    if "at" in more:
        row["start_ns"] = START + more.pop("at")
    if "trace" in more:
        row["trace_id"] = more.pop("trace").to_bytes(16, "big").hex()
    return row | more


def client(span: int, parent: int | None = None, **more: Any) -> Record:
    """A client's record."""
    return record(Kind.CLIENT, span, parent, **more)


def server(span: int, parent: int | None = None, **more: Any) -> Record:
    """A server's record."""
    return record(Kind.SERVER, span, parent, **{"service": "cart", **more})


class SidesForm:
    """JSON lines of such records."""

    form = "sides"

    def recognises(self, path: Path, head: bytes) -> bool:
        return path.suffix == ".sides"

    def read(self, source: Source) -> Iterator[Batch]:
        rows = sides()
        for number, line in enumerate(source.path.read_text().splitlines()):
            row = json.loads(line)
            row["trace_id"] = bytes.fromhex(row["trace_id"])
            rows.add(row | {"input": source.number, "record": number})
            if rows.count >= 5:
                yield rows.take()
        yield rows.take()


def write(path: Path, records: Sequence[Record]) -> Path:
    """A file of that form."""
    path.write_text("".join(json.dumps(row) + "\n" for row in records))
    return path


def options(limits: Limits = SMALL) -> Options:
    return Options(limits=limits, readers=(SidesForm(),), now_ns=NOW)


def merged(folder: Path, *files: Sequence[Record], limits: Limits = SMALL) -> Store:
    """The store of files of records."""
    folder.mkdir(parents=True, exist_ok=True)
    data = [write(folder / f"{index:03}.sides", records) for index, records in enumerate(files)]
    return ingest(data, folder / "store", options(limits))


def calls(store: Store) -> list[dict[str, Any]]:
    """All calls, without what is null."""
    rows = [row for part in store.iter_partitions(schema.SPAN.names) for row in part.to_pylist()]
    rows.sort(key=lambda row: (row["trace_id"], row["span_id"]))
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def by_id(store: Store) -> dict[int, dict[str, Any]]:
    return {row["span_id"]: row for row in calls(store)}


def reasons(store: Store, *, kept: bool | None = None) -> dict[str, int]:
    """How often each trouble is."""
    found: dict[str, int] = {}
    for row in store.read("trouble").to_pylist():
        if kept is None or row["is_kept"] == kept:
            found[row["reason"]] = found.get(row["reason"], 0) + row["count"]
    return found


def content(store: Store) -> dict[str, Any]:
    """What a store says, but for how its files are called."""
    small = {name: store.read(name).to_pylist() for name in ("methods", "trouble")}
    return {**small, **{path.name: _rows(path) for path in store.partitions()}}


def _rows(partition: Path) -> list[dict[str, Any]]:
    tables = [pq.read_table(file, partitioning=None) for file in sorted(partition.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]
