"""OTLP as JSON lines: the file format of OTLP, and what the collector's file exporter writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from scotfree.study import schema
from scotfree.study.ingest import attributes
from scotfree.study.ingest.reader import BATCH_ROWS_MAX, Batch, Rows, Source, sides

_KINDS = {f"SPAN_KIND_{kind.name}": int(kind) for kind in schema.Kind} | {"SPAN_KIND_UNSPECIFIED": 0}
_ERROR = (2, "STATUS_CODE_ERROR")


class OtlpJson:
    """See the module."""

    form = "otlp-json"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the field that every such object begins with."""
        return any(key in head for key in (b'"resourceSpans"', b'"resourceMetrics"', b'"resourceProfiles"'))

    def read(self, source: Source) -> Iterator[Batch]:
        """One object per line."""
        rows = sides()
        with source.path.open("rb") as file:
            for line in file:
                if line.strip():
                    _read_line(line, source, rows)
                if rows.count >= BATCH_ROWS_MAX:
                    source.progress(file.tell())
                    yield rows.take()
        yield rows.take()


def _read_line(line: bytes, source: Source, rows: Rows) -> None:
    try:
        request = orjson.loads(line)
        for resource in request.get("resourceSpans", []):
            of = _attributes(resource.get("resource", {}))
            for scope in resource.get("scopeSpans", []):
                for span in scope.get("spans", []):
                    rows.add(_side(span, of, source, rows.count))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        source.ledger.note(source.number, "not an OTLP trace object", detail=str(error)[:200])


def _attributes(holder: dict[str, Any]) -> dict[str, Any]:
    return {
        entry["key"]: next(iter(entry.get("value", {}).values()), None) for entry in holder.get("attributes", [])
    }


def _side(span: dict[str, Any], resource: dict[str, Any], source: Source, record: int) -> dict[str, Any]:
    start = int(span["startTimeUnixNano"])
    status = span.get("status", {})
    kind = span.get("kind", 0)
    own = _attributes(span)
    row: dict[str, Any] = {
        "trace_id": bytes.fromhex(span["traceId"]),
        "span_id": _id(span["spanId"]),
        "parent_id": _id(span["parentSpanId"]) if span.get("parentSpanId") else None,
        "kind": _KINDS.get(kind, kind),
        "is_shared": False,
        "start_ns": start,
        "duration_ns": int(span["endTimeUnixNano"]) - start,
        "name": span.get("name", ""),
        "status": (status.get("message") or "ERROR") if status.get("code") in _ERROR else schema.STATUS_OK,
        "input": source.number,
        "record": record,
    }
    for key in attributes.take(row, own):
        source.ledger.note(source.number, f"attribute {key} is no such number", record=record, kept=True)
    attributes.take(row, resource)
    row.setdefault("service", "unknown")
    return row


def _id(text: str) -> int:
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)
