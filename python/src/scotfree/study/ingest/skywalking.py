"""SkyWalking's JSON: answers of its trace queries, and collected segments; alone, in lists, or a line for each.

A query's answer has `spans` below `trace` or `traces`, each with its segment; a segment (SegmentObject) has its
spans, whose numbers count in it. Entry is a server's record, Exit a client's. All times are whole milliseconds,
which the ledger says: what is shorter is 0. Sources: trace.graphqls of apache/skywalking-query-protocol and
Tracing.proto of apache/skywalking-data-collect-protocol.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

from scotfree.study.ingest import fields, status
from scotfree.study.ingest.columns import SPAN_ID_BYTES, TRACE_ID_BYTES
from scotfree.study.ingest.inputs import HEAD_BYTES
from scotfree.study.ingest.intake import CUT, Intake, Side, is_lines, lines
from scotfree.study.ingest.json_stream import Enter, Malformed, elements
from scotfree.study.ingest.json_stream import Path as JsonPath
from scotfree.study.ingest.opening import head_of, opened
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.schema import Kind

RESOLUTION: Final = "times are whole milliseconds: stages and differences below that are not known"
_PATTERNS: Final = tuple(
    [re.compile(key) for key in keys]
    for keys in (
        (rb'"traceId"\s*:', rb'"segmentId"\s*:', rb'"type"\s*:\s*"(Entry|Exit|Local)"'),
        (rb'"traceSegmentId"\s*:', rb'"spans"\s*:'),
    )
)
_SEGMENTS: Final = re.compile(rb'"traceSegmentId"\s*:')
_OTHERS: Final = re.compile(rb'"(resourceSpans|resourceMetrics|resourceProfiles|resultType|localEndpoint)"\s*:')
# data, its trace or traces, an array of them, a trace, its spans, a span.
_DEPTH_MAX: Final = 7
_HOLDERS: Final = ("data", "trace", "traces", "queryTrace", "queryTraces", "segments")
_KINDS: Final = {
    **dict.fromkeys(("ENTRY", "0"), Kind.SERVER),
    **dict.fromkeys(("EXIT", "1"), Kind.CLIENT),
    **dict.fromkeys(("LOCAL", "2"), Kind.INTERNAL),
}
# Of the layer: a message is taken by whom it is for, and its sender waits for nobody.
_OF_MESSAGES: Final = {Kind.SERVER: Kind.CONSUMER, Kind.CLIENT: Kind.PRODUCER}
_MESSAGE_LAYERS: Final = ("MQ", "4")
_NS_PER_MS: Final = 1_000_000


class SkyWalking:
    """See the module."""

    form = "skywalking"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the ids of segments, beside traces' or spans'."""
        if head.lstrip()[:1] not in (b"[", b"{") or _OTHERS.search(head):
            return False
        return any(all(pattern.search(head) for pattern in of) for of in _PATTERNS)

    def read(self, source: Source) -> Iterator[Batch]:
        """Span by span, or segment by segment."""
        intake = Intake(source)
        by_lines = is_lines(source)
        of_segments = _SEGMENTS.search(head_of(source.path, HEAD_BYTES)) is not None
        enter = _enter_segments if of_segments else _enter_answers
        with opened(source) as file:
            for document in lines(file, intake) if by_lines else _of_stream(file, enter, intake):
                for span, segment in _spans(document):
                    intake.add(_side, span, segment)
                yield from intake.batch()
            yield from intake.batch(last=True)
        if intake.records:
            source.ledger.note(source.number, RESOLUTION, kept=True)


def _of_stream(file: BinaryIO, enter: Enter, intake: Intake) -> Iterator[Any]:
    try:
        for element in elements(file, enter, _DEPTH_MAX):
            if element.text is None:
                if not element.is_end:
                    intake.drop("the record is too long")
            elif _is_record(element.path) and (value := intake.parse(element.text)) is not None:
                yield value
    except Malformed as error:
        intake.drop(CUT, str(error))


def _enter_answers(path: JsonPath, is_array: bool) -> bool:
    """All around the spans of a query's answer; a list of answers is one of records."""
    if len(path) >= _DEPTH_MAX - 1 or "spans" in path[:-1]:
        return False
    if is_array:
        return path[-1:] in ((), ("traces",), ("spans",))
    return not path or path[-1] in _HOLDERS or path[-2:] == ("traces", "[]")


def _enter_segments(path: JsonPath, is_array: bool) -> bool:
    """A list of segments. A segment is one record: its spans do not say whose they are."""
    return is_array and not path


def _is_record(path: JsonPath) -> bool:
    """Not what else stands in an answer, such as its range of time or its errors."""
    return path[-1:] in ((), ("[]",))


_Found = tuple[Any, Mapping[str, Any]]


def _spans(value: Any) -> Iterator[_Found]:
    """The spans of a document, each with its segment, which is empty if the span names it."""
    waiting: list[Any] = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, dict) and isinstance(value.get("spans"), list):
            segment = value if "traceSegmentId" in value else {}
            yield from ((span, segment) for span in value["spans"])
        elif isinstance(value, dict) and (inside := [value[key] for key in _HOLDERS if key in value]):
            waiting += inside
        else:
            yield value, {}


def _side(span: Any, segment: Mapping[str, Any]) -> Side:
    if not isinstance(span, dict):
        raise fields.Unfit("the record is no object")
    whole = {**segment, **span}
    trace, own = _text(whole, "traceId"), _first(whole, "segmentId", "traceSegmentId")
    if own is None:
        raise fields.Unfit("segmentId is missing")
    start, end = _ms(span, "startTime"), _ms(span, "endTime")
    tags, kind = _tags(span), _kind(span, is_segments=bool(segment))
    row = {
        "trace_id": _digest(trace, TRACE_ID_BYTES),
        "span_id": _span_id(trace, own, _number(span, "spanId")),
        "parent_id": _parent(span, trace, own, is_segments=bool(segment)),
        "kind": int(kind),
        "is_shared": False,
        "start_ns": start * _NS_PER_MS,
        "duration_ns": (end - start) * _NS_PER_MS,
        "service": _first(whole, "serviceCode", "service"),
        "name": _first(whole, "endpointName", "operationName") or "",
        "peer_service": fields.text_of(span.get("peer")) if kind in (Kind.CLIENT, Kind.PRODUCER) else None,
        "machine": _host(_first(whole, "serviceInstanceName", "serviceInstance")),
        "status": _status(span, tags),
    }
    return row, [tags]


def _kind(span: Mapping[str, Any], *, is_segments: bool) -> Kind:
    """Protobuf's JSON leaves out the first name of an enumeration."""
    said = span.get("type", span.get("spanType", "Entry" if is_segments else None))
    kind = _KINDS.get(str(said).upper(), Kind.UNKNOWN)
    layer = span.get("layer", span.get("spanLayer"))
    return _OF_MESSAGES.get(kind, kind) if str(layer).upper() in _MESSAGE_LAYERS else kind


def _status(span: Mapping[str, Any], tags: Mapping[str, Any]) -> str:
    """A code says more than the flag, which some agents set without one."""
    found = status.status_of(tags)
    return status.ERROR if found == "OK" and span.get("isError") is True else found


def _parent(span: Mapping[str, Any], trace: str, own: str, *, is_segments: bool) -> int | None:
    """The span before it in its segment; for a segment's first span that which its first reference leads to."""
    number = span.get("parentSpanId", 0 if is_segments else -1)
    if _is_number(number):
        return _span_id(trace, own, number)
    for reference in map(fields.mapping_of, fields.list_of(span.get("refs"))):
        segment = _first(reference, "parentSegmentId", "parentTraceSegmentId")
        at = reference.get("parentSpanId", 0)
        if segment is not None and reference.get("traceId", trace) == trace and _is_number(at):
            return _span_id(trace, segment, at)
    return None


def _tags(span: Mapping[str, Any]) -> dict[str, Any]:
    """Its tags, under OpenTelemetry's keys where SkyWalking's own agents have another."""
    entries = (fields.mapping_of(entry) for entry in fields.list_of(span.get("tags")))
    found = {entry["key"]: entry.get("value") for entry in entries if isinstance(entry.get("key"), str)}
    if "status_code" in found:
        found.setdefault("http.status_code", found["status_code"])
    return found


def _host(instance: str | None) -> str | None:
    """Agents call an instance by a number of its own, an @ and the address of its machine."""
    return instance and (instance.rpartition("@")[2] or instance)


def _first(record: Mapping[str, Any], *keys: str) -> str | None:
    return next((text for key in keys if (text := fields.text_of(record.get(key))) is not None), None)


def _text(record: Mapping[str, Any], key: str) -> str:
    text = fields.text_of(record.get(key))
    if text is None:
        raise fields.Unfit(f"{key} is missing")
    return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _number(span: Mapping[str, Any], key: str) -> int:
    """A span's number in its segment; protobuf's JSON leaves out a 0."""
    value = span.get(key, 0)
    if not _is_number(value):
        raise fields.Unfit(f"{key} is no number")
    return int(value)


def _ms(span: Mapping[str, Any], key: str) -> int:
    """A time, also as the text that protobuf's JSON makes of it."""
    value = span.get(key)
    if isinstance(value, str) and len(value) < 20 and value.isascii() and value.isdigit():
        value = int(value)
    if value is None:
        raise fields.Unfit(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= fields.INT64_MAX // _NS_PER_MS:
        raise fields.Unfit(f"{key} is no time")
    return value


def _span_id(trace: str, segment: str, number: int) -> int:
    found = int.from_bytes(_digest(f"{trace} {segment} {number}", SPAN_ID_BYTES), "big", signed=True)
    return found or 1


def _digest(text: str, size: int) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).digest()
