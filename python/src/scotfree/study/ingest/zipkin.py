"""Zipkin's JSON, version 2: arrays of spans, arrays of such arrays as its API gives them, or a line for each.

Client and server of a call may write the same span id (`is_shared`); a span that was never finished has no
duration and goes to the ledger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from scotfree.study.ingest import fields
from scotfree.study.ingest.intake import CUT, Intake, Side, is_lines, lines
from scotfree.study.ingest.json_stream import Malformed, elements
from scotfree.study.ingest.json_stream import Path as JsonPath
from scotfree.study.ingest.opening import opened
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.status import status_of

_KEYS: Final = [re.compile(rb'"%s"\s*:' % key) for key in (b"traceId", b"id")]
_OTHERS: Final = re.compile(rb'"(resourceSpans|resourceMetrics|resourceProfiles|resultType|spanId|spanID)"\s*:')
# Arrays in arrays, as deep as the API nests them, and the spans.
_DEPTH_MAX: Final = 3


class Zipkin:
    """See the module."""

    form = "zipkin"

    def recognises(self, path: Path, head: bytes) -> bool:
        """By the two ids that every span must have."""
        return (
            head.lstrip()[:1] in (b"[", b"{")
            and all(key.search(head) for key in _KEYS)
            and not _OTHERS.search(head)
        )

    def read(self, source: Source) -> Iterator[Batch]:
        """Span by span."""
        intake = Intake(source)
        by_lines = is_lines(source)
        with opened(source) as file:
            for value in lines(file, intake) if by_lines else _outermost(file, intake):
                for span in _spans(value):
                    intake.add(_side, span)
                yield from intake.batch()
            yield from intake.batch(last=True)


def _outermost(file: Any, intake: Intake) -> Iterator[Any]:
    try:
        for element in elements(file, _is_array_of_spans, _DEPTH_MAX):
            if element.text is None:
                if not element.is_end:
                    intake.drop("the record is too long")
            elif (value := intake.parse(element.text)) is not None:
                yield value
    except Malformed as error:
        intake.drop(CUT, str(error))


def _is_array_of_spans(path: JsonPath, is_array: bool) -> bool:
    return is_array and len(path) < _DEPTH_MAX - 1


def _spans(value: Any) -> Iterator[Any]:
    """The spans of arrays in arrays; what is neither array nor object is a record that cannot be."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += reversed(value)
        else:
            yield value


def _side(span: Any) -> Side:
    if not isinstance(span, dict):
        raise fields.Unfit("the record is no object")
    tags = fields.mapping_of(span.get("tags"))
    local = fields.mapping_of(span.get("localEndpoint"))
    remote = fields.mapping_of(span.get("remoteEndpoint"))
    row = {
        "trace_id": fields.trace_id(span, "traceId"),
        "span_id": fields.span_id(span, "id"),
        "parent_id": fields.span_id(span, "parentId") if span.get("parentId") else None,
        "kind": fields.kind_of(span.get("kind")),
        "is_shared": span.get("shared") is True,
        "start_ns": fields.ns_of_us(span, "timestamp"),
        "duration_ns": fields.ns_of_us(span, "duration"),
        "service": fields.text_of(local.get("serviceName")),
        "peer_service": fields.text_of(remote.get("serviceName")),
        "name": fields.text_of(span.get("name")) or "",
        "machine": _address(local),
        "peer_machine": _address(remote),
        "status": status_of(tags),
    }
    return row, [tags]


def _address(endpoint: Mapping[str, Any]) -> str | None:
    return fields.text_of(endpoint.get("ipv4")) or fields.text_of(endpoint.get("ipv6"))
