"""The last step: merged calls to the store's own Parquet, with methods numbered and sides split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from scotfree.study import schema
from scotfree.study.ingest import clocks
from scotfree.study.store import SPAN_LAYOUT
from scotfree.study.trouble import Ledger

OTHER = "other"
ROWS_AT_ONCE = 131_072

Column = np.ndarray[Any, np.dtype[np.int64]]
_CODED = [item.name for item in schema.SPAN if pa.types.is_dictionary(item.type)]
_LUMPED = schema.provenance_bits(
    dict.fromkeys(schema.STAGES, schema.Provenance.LUMPED) | {"server_app": schema.Provenance.DERIVED}
)


@dataclass(frozen=True)
class Texts:
    """The texts behind codes. A service has a code below zero if only its client is known: -1 - the client's."""

    known: pa.Array

    def all(self) -> pa.Array:
        """Texts by `place`."""
        callees = pc.binary_join_element_wise("callee of", self.known, " ")
        return pa.concat_arrays([self.known, callees.cast(pa.string()), pa.array([OTHER])])

    def place(self, codes: Column) -> Column:
        """The row of `all` for codes."""
        return np.where(codes < 0, len(self.known) - 1 - codes, codes)

    @property
    def other(self) -> int:
        """The row of OTHER."""
        return 2 * len(self.known)


@dataclass(frozen=True)
class Methods:
    """The numbers of methods."""

    # Sorted keys of (service, method) by their places in the texts, and the number of each.
    keys: Column
    ids: Column
    table: pa.Table
    # Calls of methods that have no number of their own.
    collapsed: int

    def of(self, service: Column, method: Column) -> Column:
        """The number of each call's method."""
        key = _key(service, method)
        at = np.minimum(np.searchsorted(self.keys, key), len(self.keys) - 1)
        return np.where(self.keys[at] == key, self.ids[at], self.table.num_rows - 1)


def methods(counts: pa.Table, texts: Texts, limit: int) -> Methods:
    """Numbers, dense and in the order of (service, method); above the limit the rarest become one, the last.

    `counts`: columns service, method (codes) and calls, of any number of partitions.
    """
    key = _key(texts.place(counts["service"].to_numpy()), texts.place(counts["method"].to_numpy()))
    keys, at = np.unique(key, return_inverse=True)
    calls = np.bincount(at, counts["calls"].to_numpy(), len(keys)).astype(np.int64)
    all_texts = texts.all()
    named = pa.table(
        {
            "key": keys,
            "calls": calls,
            "service": all_texts.take(pa.array(keys >> 32)),
            "method": all_texts.take(pa.array(keys & 0xFFFFFFFF)),
        }
    )
    collapsed = 0
    if len(keys) > limit:
        named = named.sort_by([("calls", "descending"), ("service", "ascending"), ("method", "ascending")])
        collapsed = pc.sum(named["calls"].slice(limit - 1)).as_py()
        named = named.slice(0, limit - 1)
    named = named.sort_by([("service", "ascending"), ("method", "ascending")])
    by_id = named["key"].to_numpy()
    order = np.argsort(by_id)
    table = named.select(["service", "method"])
    if collapsed:
        table = pa.concat_tables([table, pa.table({"service": [OTHER], "method": [OTHER]})])
    table = table.add_column(0, "method_id", pa.array(np.arange(table.num_rows), pa.int32())).cast(schema.METHOD)
    return Methods(by_id[order], order, table, collapsed)


def _key(service: Column, method: Column) -> Column:
    return (service.astype(np.int64) << 32) | method.astype(np.int64)


class Finisher:
    """Writes partitions."""

    def __init__(self, texts: Texts, numbered: Methods, offsets: clocks.Offsets, ledger: Ledger) -> None:
        self._texts = texts
        self._all = texts.all()
        self._methods = numbered
        self._offsets = offsets
        self._ledger = ledger

    def write(self, merged: Path, to: Path) -> int:
        """One partition, whole or not at all; how many calls."""
        to.parent.mkdir(parents=True, exist_ok=True)
        half = to.with_suffix(".half")
        calls = 0
        with pq.ParquetWriter(half, schema.SPAN, **SPAN_LAYOUT) as file:
            for batch in pq.ParquetFile(merged).iter_batches(ROWS_AT_ONCE):
                file.write_table(self._spans(pa.Table.from_batches([batch])))
                calls += batch.num_rows
        half.rename(to)
        return calls

    def _spans(self, calls: pa.Table) -> pa.Table:
        service = self._texts.place(calls["service"].to_numpy())
        method = self._texts.place(calls["method"].to_numpy())
        ids = self._methods.of(service, method)
        columns: dict[str, Any] = {name: calls[name] for name in calls.column_names}
        columns |= {name: self._text(columns[name]) for name in _CODED}
        columns["service"] = self._dictionary(service, None)
        columns["trace_id"] = _trace_ids(calls)
        columns["method_id"] = pa.array(ids, pa.int32())
        if self._methods.collapsed:
            other = pa.array(ids == self._methods.table.num_rows - 1)
            for name in ("service", "method"):
                plain = pc.if_else(other, OTHER, columns[name].cast(pa.string()))
                columns[name] = plain.dictionary_encode()
        columns |= self._sides(calls)
        return pa.table({name: columns[name] for name in schema.SPAN.names}).cast(schema.SPAN)

    def _text(self, codes: pa.ChunkedArray) -> pa.Array:
        missing = codes.is_null().to_numpy() if codes.null_count else None
        return self._dictionary(codes.fill_null(0).to_numpy(), missing)

    def _dictionary(self, places: Column, missing: Any) -> pa.Array:
        """With the texts that occur, and no others."""
        occurs = np.zeros(len(self._all), np.bool_)
        occurs[places] = True
        new = np.cumsum(occurs, dtype=np.int32) - 1
        texts = self._all.take(pa.array(np.flatnonzero(occurs)))
        return pa.DictionaryArray.from_arrays(pa.array(new[places], pa.int32(), mask=missing), texts)

    def _sides(self, calls: pa.Table) -> dict[str, pa.Array]:
        stages = [calls[name].fill_null(0).to_numpy() for name in schema.STAGE_COLUMNS]
        measured = calls["is_measured"].to_numpy()
        total, app = calls["total_ns"].fill_null(0).to_numpy(), stages[schema.APP]
        request_gap = calls["request_gap_ns"].fill_null(0).to_numpy()
        low, high, known = self._offsets.of(
            calls["client_place"].fill_null(-1).to_numpy(), calls["server_place"].fill_null(-1).to_numpy()
        )
        before, bound, fits = clocks.split(total - app, request_gap, low, high)
        asked = (calls["provenance"].to_numpy() == _LUMPED) & calls["request_gap_ns"].is_valid().to_numpy()
        told = asked & known & fits
        self._note(calls, asked & ~told)
        request = np.where(measured, sum(stages[: schema.APP]), before)
        response = np.where(measured, sum(stages[schema.APP + 1 :]), total - app - before)
        given = calls["clock_bound_ns"]
        return {
            "request_side_ns": pa.array(request, mask=~(measured | told)),
            "response_side_ns": pa.array(response, mask=~(measured | told)),
            "clock_bound_ns": pc.if_else(pa.array(told), pa.array(bound), given.combine_chunks()),
        }

    def _note(self, calls: pa.Table, refused: Any) -> None:
        if not refused.any():
            return
        some = calls.select(["input", "record"]).filter(pa.array(refused)).group_by("input")
        for row in some.aggregate([("record", "min"), ("record", "count")]).to_pylist():
            self._ledger.note(
                row["input"],
                "clocks are not known well enough: request and response side are not told apart",
                record=row["record_min"],
                kept=True,
                count=row["record_count"],
            )


def _trace_ids(calls: pa.Table) -> pa.Array:
    words = np.stack([calls["hi"].to_numpy(), calls["lo"].to_numpy()], axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(words), [None, pa.py_buffer(words.tobytes())])
