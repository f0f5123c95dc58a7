"""Alibaba's microservice traces (MSCallGraph): a row of CSV for each side of a call, of 2021 and of 2022.

`rpcid` is the call's place in its trace ("0.1.3" is a child of "0.1") and the same on both sides; `rt` is positive
in the caller's record (`um`) and negative in the callee's (`dm`), in milliseconds; a message's record is of who
took it. Ids are texts: theirs here are hashes. Source: the READMEs of Alibaba's cluster-trace-microservices-v2021
and -v2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.ingest import csv_text
from scotfree.study.ingest.columns import TRACE_ID_BYTES, hashed_ids, hashed_span_ids, table_of
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.schema import Kind

_NEEDED: Final = ("timestamp", "traceid", "rpcid", "um", "dm", "rpctype", "rt")
_OPTIONAL: Final = ("interface", "uminstanceid", "dminstanceid")
# What the traces write for a service that is not known.
_UNKNOWN: Final = ("", "(?)", "UNKNOWN", "UNAVAILABLE", "NAN", "NONE", "NULL")
_MILLISECONDS: Final = r"^(?P<sign>-?)(?P<whole>[0-9]{1,12})(?P<fraction>\.[0-9]{1,15})?$"
_PARENT: Final = r"^(?P<parent>[0-9]+(?:\.[0-9]+)*)\.[0-9]+$"
_NS_PER_MS: Final = 1_000_000


class Alibaba:
    """See the module."""

    form = "alibaba"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the columns' names in the first line."""
        return set(_NEEDED) <= set(_names(head.split(b"\n", 1)[0]))

    def read(self, source: Source) -> Iterator[Batch]:
        """Block by block, on columns."""
        with opened(source) as file:
            names = _names(file.readline(csv_text.LINE_BYTES_MAX))
            if lacking := [name for name in _NEEDED if name not in names]:
                source.ledger.note(source.number, "columns are missing: not read", detail=", ".join(lacking))
                return
            wanted = [name for name in (*_NEEDED, *_OPTIONAL) if name in names]
            shape, record = csv_text.Shape(names, wanted), 0
            for block in csv_text.blocks(file):
                for rows in csv_text.parsed(block, shape, source):
                    yield _sides(rows, source, record)
                    record += rows.num_rows


def _names(line: bytes) -> list[str]:
    """The columns' names in one spelling. The traces of 2021 have a first column without a name."""
    return [
        name.strip().lower().replace("_", "") or f"unnamed {at}"
        for at, name in enumerate(csv_text.fields(line, ","))
    ]


def _sides(block: pa.RecordBatch, source: Source, first: int) -> Batch:
    given = {name: pc.utf8_trim_whitespace(block.column(name)) for name in block.schema.names}
    given["record"] = pa.array(range(first, first + block.num_rows), pa.int64())
    start, duration = _ns(given["timestamp"]), _ns(given["rt"])
    unfit = {
        "traceid is missing": pc.equal(given["traceid"], ""),
        "rpcid is missing": pc.equal(given["rpcid"], ""),
        "timestamp is no time": pc.is_null(start),
        "rt is no time": pc.is_null(duration),
    }
    good = _good(unfit, given["record"], source)
    rows = pa.record_batch({**given, "start": start, "duration": duration}).filter(good)
    columns = _columns(rows)
    _note_kept(rows, columns, source)
    columns["input"] = pa.repeat(pa.scalar(source.number, pa.int32()), rows.num_rows)
    return Batch("side", table_of(schema.SIDE, columns, rows.num_rows), rows.num_rows)


def _good(unfit: dict[str, pa.Array], record: pa.Array, source: Source) -> pa.Array:
    """Which rows are fit. Each of the others is noted under its first reason."""
    good = pc.is_valid(record)
    for reason, bad in unfit.items():
        _note(source, reason, record.filter(pc.and_(good, bad)), kept=False)
        good = pc.and_(good, pc.invert(bad))
    return good


def _note(source: Source, reason: str, records: pa.Array, *, kept: bool) -> None:
    if len(records):
        source.ledger.note(source.number, reason, record=records[0].as_py(), kept=kept, count=len(records))


def _ns(milliseconds: pa.Array) -> pa.Array:
    """Their size in nanoseconds, exact also where a float is not; null if they are no number."""
    parts = pc.extract_regex(milliseconds, _MILLISECONDS)
    whole = pc.struct_field(parts, "whole").cast(pa.int64())
    fraction = pc.struct_field(parts, "fraction")
    fraction = pc.if_else(pc.equal(fraction, ""), "0", pc.binary_join_element_wise("0", fraction, ""))
    of_ms = pc.round(pc.multiply(fraction.cast(pa.float64()), float(_NS_PER_MS))).cast(pa.int64())
    return pc.add(pc.multiply(whole, _NS_PER_MS), of_ms)


def _columns(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Columns of `side`."""
    is_message = pc.equal(pc.utf8_lower(rows["rpctype"]), "mq")
    is_callee = pc.or_(is_message, pc.starts_with(rows["rt"], "-"))
    kind = pc.if_else(is_message, int(Kind.CONSUMER), pc.if_else(is_callee, int(Kind.SERVER), int(Kind.CLIENT)))
    parent = pc.struct_field(pc.extract_regex(rows["rpcid"], _PARENT), "parent")
    own, other = _sided(rows, "um", "dm", is_callee)
    machine, peer_machine = _sided(rows, "uminstanceid", "dminstanceid", is_callee)
    name = _known(rows["interface"]) if "interface" in rows.schema.names else pa.nulls(rows.num_rows, pa.string())
    return {
        "trace_id": hashed_ids(rows["traceid"], TRACE_ID_BYTES),
        "span_id": hashed_span_ids(rows["rpcid"]),
        "parent_id": hashed_span_ids(parent),
        "kind": kind,
        "is_shared": pc.equal(kind, int(Kind.SERVER)),
        "start_ns": rows["start"],
        "duration_ns": rows["duration"],
        "service": pc.fill_null(own, "unknown"),
        "peer_service": other,
        "name": pc.coalesce(name, rows["rpctype"]),
        "machine": machine,
        "peer_machine": peer_machine,
        "status": pa.repeat(schema.STATUS_OK, rows.num_rows),
        "record": rows["record"],
    }


def _sided(rows: pa.RecordBatch, caller: str, callee: str, is_callee: pa.Array) -> tuple[pa.Array, pa.Array]:
    """A pair of columns as whose the record is, and the other's."""
    if caller not in rows.schema.names or callee not in rows.schema.names:
        return pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.string())
    of_caller, of_callee = _known(rows[caller]), _known(rows[callee])
    return pc.if_else(is_callee, of_callee, of_caller), pc.if_else(is_callee, of_caller, of_callee)


def _known(names: pa.Array) -> pa.Array:
    # Made here: where pandas is installed, the first array imports it, for a second of everybody's start.
    unknown = pa.array(_UNKNOWN, pa.string())
    return pc.if_else(pc.is_in(pc.utf8_upper(names), unknown), pa.scalar(None, pa.string()), names)


def _note_kept(rows: pa.RecordBatch, columns: dict[str, pa.Array], source: Source) -> None:
    is_root = pc.match_substring_regex(rows["rpcid"], "^[0-9]+$")
    is_orphan = pc.and_(pc.is_null(columns["parent_id"]), pc.invert(is_root))
    is_zero = pc.and_(pc.equal(rows["duration"], 0), pc.equal(columns["kind"], int(Kind.CLIENT)))
    kept = {
        "no service is named": pc.equal(columns["service"], "unknown"),
        "the other side's service is not named": pc.is_null(columns["peer_service"]),
        "rpcid is no path of numbers": is_orphan,
        "rt is 0, so it may be either side's": is_zero,
    }
    for reason, which in kept.items():
        _note(source, reason, rows["record"].filter(which), kept=True)
