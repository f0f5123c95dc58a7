"""Help for tests of profiles: reads a form's bytes, makes a study of rows."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest.reader import Reader, Source
from scotfree.study.store import Manifest, Store, write_manifest, write_table
from scotfree.study.trouble import Ledger


def rows_of(reader: Reader, path: Path) -> tuple[pa.Table, list[dict[str, Any]], int]:
    """The rows, the ledger's rows, and how many records the rows come from."""
    source = Source(path, 0, Ledger())
    batches = list(reader.read(source))
    rows = pa.concat_tables([schema.PROFILE.empty_table(), *(batch.rows for batch in batches)])
    return rows.unify_dictionaries(), source.ledger.table().to_pylist(), sum(batch.records for batch in batches)


def folded_of(rows: pa.Table) -> dict[str, float]:
    """The weight of each stack."""
    weights: dict[str, float] = {}
    for row in rows.to_pylist():
        key = ";".join(row["stack"])
        weights[key] = weights.get(key, 0.0) + row["weight"]
    return weights


def profile_rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows of `profile`; what is not given is null, the unit nanoseconds."""
    plain = pa.schema([field.with_type(_plain(field.type)) for field in schema.PROFILE])
    return pa.Table.from_pylist([{"unit": "cpu_ns"} | row for row in rows], schema=plain)


def study_of(folder: Path, rows: pa.Table, rule_files: tuple[Path, ...] = ()) -> Study:
    """A study of nothing but these profiles."""
    write_table(rows, folder / "profile" / "part.parquet")
    write_table(schema.METHOD.empty_table(), folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    write_manifest(folder, Manifest())
    store = Store.open(folder)
    return Study(store, DuckEngine(store), rule_files=rule_files)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(pa.string())
    return pa.string() if pa.types.is_dictionary(kind) else kind
