"""What is checked of a record by itself, before it is merged: ids, times, sizes, names.

Each rule either repairs a field or drops the record, and is counted by its reason with the first place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest import addresses
from scotfree.study.store import trace_words
from scotfree.study.trouble import Ledger

NAME_CHARACTERS_MAX = 1024
DAY_NS = 86_400 * 10**9
DURATION_NS_MAX = 30 * DAY_NS
# 1990-01-01. Whoever has an earlier clock has none.
START_NS_MIN = 631_152_000 * 10**9
# Ends of records stay within 64 bits.
_START_NS_LIMIT = 2**62

_TEXTS = [field.name for field in schema.RECORD if pa.types.is_dictionary(field.type)]
# The most that each can be, so that sums of them stay within 64 bits, and exact as floats.
SIZE_BYTES_MAX = 2**40
_COUNTS = {
    **dict.fromkeys((*schema.STAGE_COLUMNS, "cpu_ns", "clock_bound_ns"), DURATION_NS_MAX),
    **dict.fromkeys(("req_bytes", "resp_bytes", "req_wire_bytes", "resp_wire_bytes"), SIZE_BYTES_MAX),
}
_FLOATS = {"cpu_cycles": 1e18, "sample_weight": 1e12}
# A duration that cannot be is null.
_CLEANED = pa.schema([field.with_nullable(True) for field in schema.RECORD])

# Times that cannot be since 1970 count from elsewhere, most often from the beginning of a trace or of a file.
EARLY = "starts before 1990: if times count from a start, say when that was: --epoch 2026-01-31T12:00:00Z"
MOVED = "its start counts from --epoch"

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Cleaner:
    """The rules for the records of one input."""

    def __init__(self, number: int, ledger: Ledger, now_ns: int, epoch_ns: int | None = None) -> None:
        self._number = number
        # When it was from which early times count.
        self._epoch_ns = epoch_ns
        self._ledger = ledger
        self._start_ns_max = now_ns + DAY_NS

    def clean(self, rows: pa.Table) -> pa.Table:
        """The records that can be merged, each field as it may be used."""
        rows = _with_ids(rows.cast(schema.SIDE).combine_chunks(), self._note)
        for rule in (_parents, _kinds, _peers, self._since_epoch, self._times, _numbers, _weights, _names):
            rows = rule(rows, self._note)
        return rows.cast(_CLEANED)

    def _note(self, rows: pa.Table, wrong: Mask, reason: str, kept: bool = True) -> bool:
        """Counts; whether there are any."""
        count = int(wrong.sum())
        if count:
            first = int(_numpy(rows["record"])[wrong].min())
            self._ledger.note(self._number, reason, record=first, kept=kept, count=count)
        return count > 0

    def _since_epoch(self, rows: pa.Table, note: Note) -> pa.Table:
        """Times that count from the moment that the user names; not those that are since 1970 already."""
        start = _numpy(rows["start_ns"])
        early = (start >= 0) & (start < START_NS_MIN)
        if self._epoch_ns is None or not note(rows, early, MOVED):
            return rows
        return _set(rows, "start_ns", pa.array(np.where(early, start + self._epoch_ns, start)))

    def _times(self, rows: pa.Table, note: Note) -> pa.Table:
        start, duration = _numpy(rows["start_ns"]), _numpy(rows["duration_ns"])
        note(rows, start < START_NS_MIN, EARLY)
        if note(rows, start > self._start_ns_max, "starts more than a day from now"):
            rows = _set(rows, "start_ns", pa.array(np.minimum(start, _START_NS_LIMIT)))
        if (start < 0).any():
            rows = _set(rows, "start_ns", pa.array(np.maximum(start, 0)))
        negative, endless = duration < 0, duration > DURATION_NS_MAX
        if note(rows, negative, "ends before it starts: its duration is not used") | note(
            rows, endless, "lasts more than 30 days: its duration is not used"
        ):
            rows = _set(rows, "duration_ns", pa.array(duration, mask=negative | endless))
        return rows


Note = Callable[..., bool]


def _with_ids(rows: pa.Table, note: Note) -> pa.Table:
    no_trace = (trace_words(_array(rows["trace_id"])) == 0).all(axis=1)
    no_span = _numpy(rows["span_id"]) == 0
    if note(rows, no_trace, "trace id is zero", kept=False) | note(
        rows, no_span & ~no_trace, "span id is zero", kept=False
    ):
        return rows.filter(pa.array(~(no_trace | no_span)))
    return rows


def _parents(rows: pa.Table, note: Note) -> pa.Table:
    parent = pc.fill_null(rows["parent_id"], 0)
    own = _bools(pc.equal(parent, rows["span_id"]))
    if own.any():
        note(rows, own, "is its own parent: taken as without")
    none = own | (_numpy(parent) == 0)
    return _set(rows, "parent_id", pa.array(_numpy(parent), mask=none))


def _kinds(rows: pa.Table, note: Note) -> pa.Table:
    kind = _numpy(rows["kind"])
    wrong = (kind < 0) | (kind > max(schema.Kind))
    if note(rows, wrong, "kind is none that is known"):
        rows = _set(rows, "kind", pa.array(np.where(wrong, 0, kind).astype(np.int8)))
    return rows


def _peers(rows: pa.Table, note: Note) -> pa.Table:
    if rows[schema.PEER_ADDRESS].null_count < rows.num_rows:
        peers = addresses.peers(rows).dictionary_encode()
        rows = _set(rows, "peer_service", peers.cast(schema.RECORD.field("peer_service").type))
    return rows.drop_columns([schema.PEER_ADDRESS])


def _numbers(rows: pa.Table, note: Note) -> pa.Table:
    for name, most in _COUNTS.items():
        if rows[name].null_count < rows.num_rows:
            negative, endless = _bools(pc.less(rows[name], 0)), _bools(pc.greater(rows[name], most))
            if note(rows, negative, f"{name} is negative: not used") | note(
                rows, endless, f"{name} is more than {most}: not used"
            ):
                rows = _null(rows, name, negative | endless)
    return rows


def _weights(rows: pa.Table, note: Note) -> pa.Table:
    for name, most in _FLOATS.items():
        if rows[name].null_count < rows.num_rows:
            value = _numpy(pc.fill_null(rows[name], 1.0))
            wrong = ~(value <= most) | (value < 0) | ((value == 0) & (name == "sample_weight"))
            if note(rows, wrong, f"{name} is no such number: not used"):
                rows = _null(rows, name, wrong)
    return rows


def _names(rows: pa.Table, note: Note) -> pa.Table:
    for name in _TEXTS:
        texts = _array(rows[name])
        long = _bools(pc.greater(pc.utf8_length(texts.dictionary), NAME_CHARACTERS_MAX))
        if long.any():
            codes = texts.indices.fill_null(0).to_numpy(zero_copy_only=False)
            wrong = long[codes] & _bools(texts.is_valid())
            note(rows, wrong, f"{name} is longer than {NAME_CHARACTERS_MAX} characters: cut")
            cut = pc.utf8_slice_codeunits(texts.dictionary, 0, NAME_CHARACTERS_MAX)
            rows = _set(rows, name, pa.DictionaryArray.from_arrays(texts.indices, cut))
    return rows


def _set(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _null(rows: pa.Table, name: str, wrong: Mask) -> pa.Table:
    return _set(rows, name, pc.if_else(pa.array(wrong), pa.scalar(None, rows[name].type), _array(rows[name])))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _numpy(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    return np.asarray(column.to_numpy())


def _bools(values: pa.ChunkedArray | pa.Array) -> Mask:
    found: Mask = np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), np.bool_)
    return found
