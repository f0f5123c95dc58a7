"""OTLP's protobuf becomes rows: against an independent encoder, in all framings, whole and broken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from otlp_spans import rows, spans, traces

from scotfree.study import schema
from scotfree.study.ingest.opening import ENDS_EARLY
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.reader import Source
from scotfree.study.trouble import Ledger


def varint(number: int) -> bytes:
    low, rest = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def fixed(message: bytes) -> bytes:
    return len(message).to_bytes(4, "big") + message


FRAMINGS: dict[str, Callable[[list[bytes]], bytes]] = {
    "bare": b"".join,
    "fixed": lambda messages: b"".join(fixed(message) for message in messages),
    "varint": lambda messages: b"".join(varint(len(message)) + message for message in messages),
    "compressed one by one": lambda messages: b"".join(fixed(zstandard.compress(message)) for message in messages),
    "compressed as one": lambda messages: zstandard.compress(b"".join(fixed(message) for message in messages)),
}


def read(path: Path) -> tuple[pa.Table, Ledger]:
    """The spans, and what was lost. A changed byte may make a message one of metrics: those rows are their own."""
    source = Source(path, 3, Ledger())
    batches = list(OtlpProto().read(source))
    spans_of = [batch for batch in batches if batch.relation == "side"]
    for batch in batches:
        batch.rows.validate(full=True)
        assert batch.rows.schema == (schema.SIDE if batch.relation == "side" else schema.METRIC)
    assert all(batch.records == batch.rows.num_rows for batch in spans_of)
    return pa.concat_tables([batch.rows for batch in spans_of]).unify_dictionaries(), source.ledger


def one_trace() -> TracesData:
    data = TracesData()
    scope = data.resource_spans.add().scope_spans.add()
    for number in range(1, 51):
        scope.spans.append(
            Span(
                trace_id=bytes(15) + bytes([number]),
                span_id=number.to_bytes(8, "big"),
                name="Get",
                start_time_unix_nano=1000,
                end_time_unix_nano=1000 + number,
            )
        )
    return data


@given(data=traces())
@settings(max_examples=50, deadline=None)
def test_rows_are_those_of_the_plain_definition(
    tmp_path_factory: pytest.TempPathFactory, data: TracesData
) -> None:
    path = tmp_path_factory.mktemp("otlp") / "spans.pb"
    path.write_bytes(data.SerializeToString())
    table, ledger = read(path)
    assert table.to_pylist() == rows(data)
    assert ledger.dropped() == 0


@pytest.mark.parametrize("framing", FRAMINGS)
def test_every_framing_is_told_and_read(tmp_path: Path, framing: str) -> None:
    message = one_trace().SerializeToString()
    path = tmp_path / "spans"
    path.write_bytes(FRAMINGS[framing]([message, message, message]))
    table, ledger = read(path)
    assert table["duration_ns"].to_pylist() == list(range(1, 51)) * 3
    assert table["record"].to_pylist() == list(range(150))
    assert list(ledger.reasons()) == []
    head = message if framing == "compressed as one" else path.read_bytes()
    assert OtlpProto().recognises(path, head)


@pytest.mark.parametrize("framing", ["bare", "fixed", "varint"])
def test_what_stands_before_a_cut_is_kept(tmp_path: Path, framing: str) -> None:
    message = one_trace().SerializeToString()
    whole = FRAMINGS[framing]([message])
    (tmp_path / "spans").write_bytes(whole[: len(whole) // 2 + 7])
    table, ledger = read(tmp_path / "spans")
    assert table["duration_ns"].to_pylist() == list(range(1, table.num_rows + 1))
    assert 20 < table.num_rows < 30
    assert list(ledger.reasons()) == [ENDS_EARLY]


@given(data=traces(), seed=st.data())
@settings(max_examples=50, deadline=None)
def test_any_bytes_end_in_rows_or_the_ledger(
    tmp_path_factory: pytest.TempPathFactory, data: TracesData, seed: st.DataObject
) -> None:
    framing = seed.draw(st.sampled_from(sorted(FRAMINGS)))
    whole = bytearray(FRAMINGS[framing]([data.SerializeToString()] * 2))
    for _ in range(seed.draw(st.integers(0, 3)) if whole else 0):
        whole[seed.draw(st.integers(0, len(whole) - 1))] = seed.draw(st.integers(0, 255))
    path = tmp_path_factory.mktemp("otlp") / "spans.pb"
    path.write_bytes(whole[: seed.draw(st.integers(0, len(whole)))])
    table, ledger = read(path)
    records = table["record"].to_pylist()
    assert records == sorted(set(records))
    assert (records[-1] if records else -1) < table.num_rows + ledger.dropped()


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("trace_id", b"short", "a trace's id is not of 16 bytes, or zero"),
        ("trace_id", bytes(16), "a trace's id is not of 16 bytes, or zero"),
        ("span_id", b"", "a span's id is not of 8 bytes, or zero"),
        ("start_time_unix_nano", 0, "a start or an end is missing"),
        ("end_time_unix_nano", 0, "a start or an end is missing"),
        ("end_time_unix_nano", 999, "it ends before it starts"),
        ("end_time_unix_nano", 2**63, "a time is beyond the year 2262"),
    ],
)
def test_what_is_no_span_is_dropped_with_its_reason(
    tmp_path: Path, field: str, value: object, reason: str
) -> None:
    data = one_trace()
    setattr(data.resource_spans[0].scope_spans[0].spans[7], field, value)
    (tmp_path / "spans").write_bytes(data.SerializeToString())
    table, ledger = read(tmp_path / "spans")
    assert table["record"].to_pylist() == [number for number in range(50) if number != 7]
    row = ledger.table().to_pylist()[0]
    assert (row["reason"], row["record"], row["is_kept"]) == (reason, 7, False)


@given(span=spans(), parent=st.binary(min_size=1, max_size=20), kind=st.integers(-(2**31), 2**31 - 1))
@settings(max_examples=20, deadline=None)
def test_a_wrong_parent_and_kind_are_told_and_kept(
    tmp_path_factory: pytest.TempPathFactory, span: Span, parent: bytes, kind: int
) -> None:
    data = TracesData()
    span.parent_span_id = parent
    span.kind = kind  # type: ignore[assignment]
    data.resource_spans.add().scope_spans.add().spans.append(span)
    path = tmp_path_factory.mktemp("otlp") / "spans.pb"
    path.write_bytes(data.SerializeToString())
    table, ledger = read(path)
    assert table.num_rows == 1
    assert ("a kind is unknown" in ledger.reasons()) == (not 0 <= kind <= 5)
    assert ("a parent's id is not of 8 bytes" in ledger.reasons()) == (len(parent) != 8)
