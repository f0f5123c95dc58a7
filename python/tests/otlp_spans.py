"""Spans of OTLP for tests: any, as opentelemetry-proto's messages, and the rows that they must become."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span, Status, TracesData

from scotfree.study import schema
from scotfree.study.ingest import attributes, status

KEYS = [
    *attributes.INTEGERS,
    *attributes.FLOATS,
    *attributes.TEXTS,
    *status.GRPC_KEYS,
    *status.HTTP_KEYS,
    *status.TEXT_KEYS,
    *attributes.HEDGES,
    "other",
]
_WORDS = st.sampled_from(["", "a", "17", "not_found", "503", "-1", "Größe", "hedge", "x" * 40])
VALUES = st.one_of(
    _WORDS.map(lambda text: AnyValue(string_value=text)),
    st.one_of(st.sampled_from([5, 404, 418]), st.integers(-2, 2**63 - 1)).map(
        lambda number: AnyValue(int_value=number)
    ),
    st.sampled_from([-1.0, 0.0, 2.5, 1e30, float("nan"), float("inf")]).map(
        lambda number: AnyValue(double_value=number)
    ),
    st.booleans().map(lambda truth: AnyValue(bool_value=truth)),
)
ATTRIBUTES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8).map(
    lambda of: [KeyValue(key=key, value=value) for key, value in of.items()]
)
_IDS = st.integers(1, 2**64 - 1).map(lambda number: number.to_bytes(8, "big"))


@st.composite
def spans(draw: st.DrawFn) -> Span:
    """One that OTLP allows."""
    start = draw(st.integers(1, 2**63 - 1))
    return Span(
        trace_id=draw(st.integers(1, 2**128 - 1)).to_bytes(16, "big"),
        span_id=draw(_IDS),
        parent_span_id=draw(st.one_of(st.just(b""), _IDS)),
        name=draw(_WORDS),
        kind=Span.SpanKind.Name(draw(st.integers(0, 5))),
        start_time_unix_nano=start,
        end_time_unix_nano=draw(st.integers(start, 2**63 - 1)),
        attributes=draw(ATTRIBUTES),
        links=[Span.Link(attributes=draw(ATTRIBUTES))] if draw(st.booleans()) else [],
        status=draw(
            st.builds(Status, code=st.integers(0, 2), message=st.sampled_from(["", "CANCELLED", "no such key"]))
        ),
        dropped_attributes_count=draw(st.integers(0, 3)),
        events=[Span.Event(name="e")] if draw(st.booleans()) else [],
        flags=draw(st.integers(0, 2**32 - 1)),
    )


@st.composite
def traces(draw: st.DrawFn) -> TracesData:
    """Some resources with some spans."""
    data = TracesData()
    for _ in range(draw(st.integers(0, 3))):
        resource: ResourceSpans = data.resource_spans.add()
        resource.resource.attributes.extend(draw(ATTRIBUTES))
        for _ in range(draw(st.integers(0, 2))):
            resource.scope_spans.add().spans.extend(draw(st.lists(spans(), max_size=4)))
    return data


def rows(data: TracesData) -> list[dict[str, Any]]:
    """The rows of `side`, by the plain definition."""
    found: list[dict[str, Any]] = []
    for resource in data.resource_spans:
        of = _said(resource.resource.attributes)
        for scope in resource.scope_spans:
            for span in scope.spans:
                found.append(_row(span, of, len(found)))
    return found


def _said(entries: Any) -> dict[str, Any]:
    said = {}
    for entry in entries:
        which = entry.value.WhichOneof("value")
        said[entry.key] = getattr(entry.value, which)
    return said


def _row(span: Span, resource: dict[str, Any], record: int) -> dict[str, Any]:
    own = _said(span.attributes)
    links = [_said(link.attributes) for link in span.links]
    row = dict.fromkeys(schema.SIDE.names)
    attributes.take(row, own)
    attributes.take(row, resource)
    row |= {
        "trace_id": span.trace_id,
        "span_id": int.from_bytes(span.span_id, "big", signed=True),
        "parent_id": int.from_bytes(span.parent_span_id, "big", signed=True) if span.parent_span_id else None,
        "kind": span.kind,
        "is_shared": False,
        "start_ns": span.start_time_unix_nano,
        "duration_ns": span.end_time_unix_nano - span.start_time_unix_nano,
        "name": span.name,
        "status": _status(span, own),
        "service": row["service"] if row["service"] is not None else "unknown",
        "input": 3,
        "record": record,
    }
    if any(said.get(key) == value for said in [own, *links] for key, value in attributes.HEDGES.items()):
        row["is_hedge"] = True
    return row


def _status(span: Span, own: dict[str, Any]) -> str:
    if span.status.code == Status.STATUS_CODE_OK:
        return schema.STATUS_OK
    # By the rule that traces of other forms follow, of the attributes that say by themselves that a call failed.
    numbers: dict[str, Any] = {key: own[key] for key in (*status.GRPC_KEYS, *status.HTTP_KEYS) if key in own}
    if (found := status.status_of(numbers)) != schema.STATUS_OK:
        return found
    if span.status.code != Status.STATUS_CODE_ERROR:
        return schema.STATUS_OK
    error = own.get("error.type")
    if isinstance(error, int) and not isinstance(error, bool):
        return str(error)
    return error if error and isinstance(error, str) else span.status.message or status.ERROR
