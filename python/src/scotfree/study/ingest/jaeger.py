"""Jaeger's JSON: `{"data": [trace, …]}` as its API gives it, a trace a line, or a span with its process a line.

A trace's processes may stand behind its spans, so the spans of a trace wait for them, as bytes and up to a limit;
for a longer trace they are looked for in a second reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from scotfree.study.ingest import fields
from scotfree.study.ingest.intake import CUT, Intake, Side, is_lines, lines
from scotfree.study.ingest.json_stream import Element, Malformed, elements
from scotfree.study.ingest.json_stream import Path as JsonPath
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.status import status_of
from scotfree.study.trouble import Ledger

_KEYS: Final = [re.compile(rb'"%s"\s*:' % key) for key in (b"traceID", b"spanID|spans|processes")]
_OTHERS: Final = re.compile(rb'"(resourceSpans|resourceMetrics|resourceProfiles|resultType)"\s*:')
# data, its array, a trace, its spans, a span.
_DEPTH_MAX: Final = 5
# Spans that wait for their processes.
_WAITING_BYTES_MAX: Final = 32 << 20
_PARENTS: Final = ("CHILD_OF", "FOLLOWS_FROM")


class Jaeger:
    """See the module."""

    form = "jaeger"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the spelling of its ids."""
        return (
            not _OTHERS.search(head)
            and head.lstrip()[:1] in (b"[", b"{")
            and all(key.search(head) for key in _KEYS)
        )

    def read(self, source: Source) -> Iterator[Batch]:
        """Span by span."""
        intake = Intake(source)
        by_lines = is_lines(source)
        with opened(source) as file:
            found = _of_lines(file, intake) if by_lines else _of_stream(file, intake)
            for span, processes in found:
                intake.add(_side, span, processes)
                yield from intake.batch()
            yield from intake.batch(last=True)


_Found = tuple[Any, Mapping[str, Any]]


def _of_lines(file: BinaryIO, intake: Intake) -> Iterator[_Found]:
    for document in lines(file, intake):
        yield from _of_document(document)


def _of_document(document: Any) -> Iterator[_Found]:
    """The spans of a document that is in memory, with their processes."""
    if isinstance(document, list):
        for part in document:
            yield from _of_document(part)
    elif isinstance(document, dict) and isinstance(document.get("data"), list):
        for trace in document["data"]:
            yield from _of_document(trace)
    elif isinstance(document, dict) and isinstance(document.get("spans"), list):
        processes = fields.mapping_of(document.get("processes"))
        for span in document["spans"]:
            yield span, processes
    else:
        yield document, {}


def _of_stream(file: BinaryIO, intake: Intake) -> Iterator[_Found]:
    waiting = _Waiting(intake)
    try:
        for element in elements(file, _enter, _DEPTH_MAX):
            yield from waiting.take(element)
    except Malformed as error:
        yield from waiting.release()
        intake.drop(CUT, str(error))


def _enter(path: JsonPath, is_array: bool) -> bool:
    """Documents, arrays of traces, traces, and their arrays of spans."""
    if len(path) >= _DEPTH_MAX - 1:
        return False
    if is_array:
        return path[-1:] in ((), ("data",), ("spans",))
    return not path or (path[-1] == "[]" and path[-2:-1] != ("spans",))


class _Waiting:
    """The spans of the trace under way."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._trace = 0
        self._spans: list[bytes] = []
        self._bytes = 0
        self._processes: Mapping[str, Any] | None = None

    def take(self, element: Element) -> Iterator[_Found]:
        if element.path[-2:] == ("spans", "[]"):
            yield from self._take_span(element)
        elif element.path[-1:] == ("processes",) and element.text is not None:
            self._processes = fields.mapping_of(self._intake.parse(element.text))
        elif element.is_end and element.path[-1:] in ((), ("[]",)):
            yield from self._end_trace()

    def release(self) -> Iterator[_Found]:
        """The spans that wait, with what is known of their processes."""
        for text in self._spans:
            if (span := self._intake.parse(text)) is not None:
                yield span, self._processes or {}
        self._spans.clear()
        self._bytes = 0

    def _take_span(self, element: Element) -> Iterator[_Found]:
        if element.text is None:
            self._intake.drop("the record is too long")
            return
        self._spans.append(element.text)
        self._bytes += len(element.text)
        if self._processes is None and self._bytes > _WAITING_BYTES_MAX:
            self._processes = _processes_of(self._intake.source, self._trace)
        if self._processes is not None:
            yield from self.release()

    def _end_trace(self) -> Iterator[_Found]:
        yield from self.release()
        self._processes = None
        self._trace += 1


def _processes_of(source: Source, trace: int) -> Mapping[str, Any]:
    """The processes of the trace with that number, by reading the input again up to them."""
    # What is wrong with the input is said by the first reading.
    with opened(Source(source.path, source.number, Ledger())) as file:
        waiting = 0
        for element in elements(file, _enter, _DEPTH_MAX):
            if element.is_end and element.path[-1:] in ((), ("[]",)):
                waiting += 1
            elif waiting == trace and element.path[-1:] == ("processes",) and element.text is not None:
                return fields.mapping_of(fields.json_of(element.text))
    return {}


def _side(span: Any, processes: Mapping[str, Any]) -> Side:
    if not isinstance(span, dict):
        raise fields.Unfit("the record is no object")
    tags = _tags(span)
    process = fields.mapping_of(span.get("process") or processes.get(str(span.get("processID"))))
    row = {
        "trace_id": fields.trace_id(span, "traceID"),
        "span_id": fields.span_id(span, "spanID"),
        "parent_id": _parent(span),
        "kind": fields.kind_of(tags.get("span.kind")),
        "is_shared": False,
        "start_ns": fields.ns_of_us(span, "startTime"),
        "duration_ns": fields.ns_of_us(span, "duration"),
        "service": fields.text_of(process.get("serviceName")),
        "name": fields.text_of(span.get("operationName")) or "",
        "status": status_of(tags),
    }
    return row, [tags, _tags(process)]


def _tags(holder: Mapping[str, Any]) -> dict[str, Any]:
    entries = (fields.mapping_of(entry) for entry in fields.list_of(holder.get("tags")))
    return {entry["key"]: entry.get("value") for entry in entries if isinstance(entry.get("key"), str)}


def _parent(span: Mapping[str, Any]) -> int | None:
    """The first reference into the same trace; a child's before a follower's; the older field last."""
    references = [fields.mapping_of(entry) for entry in fields.list_of(span.get("references"))]
    for kind in _PARENTS:
        for reference in references:
            if reference.get("refType") == kind and reference.get("traceID") == span.get("traceID"):
                return fields.span_id(reference, "spanID")
    return fields.span_id(span, "parentSpanID") if span.get("parentSpanID") else None
