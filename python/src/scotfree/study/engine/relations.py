"""The relations of a store, known to an engine under their names: where there are no files, without a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.store import Store

RELATIONS: Final = {"span": schema.SPAN, "metric": schema.METRIC, "profile": schema.PROFILE}


class Opener(Protocol):
    """What opening asks of an engine."""

    def read_parquet(self, name: str, files: list[Path]) -> None:
        """Makes files known as one relation."""

    def register(self, name: str, table: pa.Table) -> Any:
        """See `Engine.register`."""


def open_all(engine: Opener, store: Store) -> None:
    """Makes the store's relations known, and the names of its methods."""
    for name, relation in RELATIONS.items():
        files = store.files(name)
        if files:
            engine.read_parquet(name, files)
        else:
            engine.register(name, plain(relation).empty_table())
    engine.register("methods", store.read("methods"))


def plain(relation: pa.Schema) -> pa.Schema:
    """The relation without dictionaries."""
    return pa.schema([field.with_type(_plain(field.type)) for field in relation])


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind.value_type
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind
