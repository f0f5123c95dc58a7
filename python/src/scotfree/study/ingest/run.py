"""The ingest: files into a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest.alibaba import Alibaba
from scotfree.study.ingest.jaeger import Jaeger
from scotfree.study.ingest.otlp_json import OtlpJson
from scotfree.study.ingest.prometheus import Prometheus
from scotfree.study.ingest.reader import Reader, Source
from scotfree.study.ingest.zipkin import Zipkin
from scotfree.study.store import Input, Manifest, Store, partition_folder, write_manifest, write_table
from scotfree.study.trouble import Ledger, StudyError

READERS: tuple[Reader, ...] = (OtlpJson(), Jaeger(), Zipkin(), Alibaba(), Prometheus())
_HEAD_BYTES = 64 * 1024


def ingest(data: Sequence[Path], folder: Path) -> Store:
    """Reads files and folders of them into a new store."""
    ledger = Ledger()
    sides, inputs = [], []
    for number, path in enumerate(_files(data)):
        reader = _reader(path)
        batches = list(reader.read(Source(path, number, ledger)))
        sides += [batch.rows for batch in batches]
        inputs.append(Input(str(path), reader.form, path.stat().st_size, sum(batch.records for batch in batches)))
    rows = pa.concat_tables([schema.SIDE.empty_table(), *sides]).unify_dictionaries()
    spans, methods = _calls(rows)
    write_table(spans, partition_folder(folder, 0) / "part.parquet")
    write_table(methods, folder / "methods.parquet")
    write_table(ledger.table(), folder / "trouble.parquet")
    write_manifest(folder, Manifest(partitions=1, inputs=inputs, records_in=rows.num_rows, spans=spans.num_rows))
    return Store.open(folder)


def _files(data: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in data:
        if not path.exists():
            raise StudyError(f"read {path}: there is no such file or folder", "name a file or a folder of traces")
        found += sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    return found


def _reader(path: Path) -> Reader:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    for reader in READERS:
        if reader.recognises(path, head):
            return reader
    raise StudyError(f"read {path}: it has no known form", "name its form with --form, or leave it out")


def _calls(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Client records as calls."""
    clients = rows.filter(pc.equal(rows["kind"], int(schema.Kind.CLIENT)))
    service = pc.coalesce(clients["peer_service"].cast(pa.string()), clients["service"].cast(pa.string()))
    name = clients["name"].cast(pa.string())
    keys = (
        pa.table({"service": service, "method": name})
        .group_by(["service", "method"])
        .aggregate([])
        .sort_by([("service", "ascending"), ("method", "ascending")])
    )
    methods = keys.add_column(0, "method_id", pa.array(range(keys.num_rows), pa.int32())).cast(schema.METHOD)
    ids = {(row["service"], row["method"]): row["method_id"] for row in methods.to_pylist()}
    columns = {
        "trace_id": clients["trace_id"],
        "method_id": pa.array(
            [ids[key] for key in zip(service.to_pylist(), name.to_pylist(), strict=True)], pa.int32()
        ),
        "service": service.dictionary_encode(),
        "method": name.dictionary_encode(),
        "client_service": clients["service"],
        "total_ns": clients["duration_ns"],
        "provenance": pa.array([schema.ALL_MEASURED] * clients.num_rows, pa.int32()),
    }
    for field in schema.SPAN:
        if field.name not in columns:
            columns[field.name] = (
                clients[field.name]
                if field.name in clients.column_names
                else pa.nulls(clients.num_rows, field.type)
            )
    return pa.table({name: columns[name] for name in schema.SPAN.names}).cast(schema.SPAN), methods
