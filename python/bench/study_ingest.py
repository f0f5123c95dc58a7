"""How fast OTLP's protobuf becomes rows of `side`, by the decoder in Rust, by plain Python, and into a store.

The input is what the collector's file exporter writes: messages of 500 spans behind lengths of four bytes, each
span with its nine stages and 20 attributes beside. It is made by opentelemetry-proto, whose time does not count.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from scotfree.study import schema
from scotfree.study.ingest import attributes
from scotfree.study.ingest.otlp_proto import OtlpProto
from scotfree.study.ingest.reader import Source, sides
from scotfree.study.ingest.run import ingest
from scotfree.study.trouble import Ledger

MESSAGE_SPANS = 500
# So many messages differ; a file is these again and again.
MESSAGES = 40
START_NS = 1_700_000_000_000_000_000


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """Spans read per second of processor time, and how many were lost."""
    spans = int(settings["spans"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(os.environ.get("SCOT_BENCH_FOLDER", scratch))
        path = _input(folder, spans)
        began, began_cpu = time.perf_counter(), time.process_time()
        rows = ARMS[arm](path, Path(scratch))
        wall_s, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    return {
        "spans_per_cpu_s": spans / cpu_s,
        "spans_per_s": spans / wall_s,
        "lost": float(spans - rows),
    }


def _read(path: Path, _scratch: Path) -> int:
    ledger = Ledger()
    rows = sum(batch.records for batch in OtlpProto().read(Source(path, 0, ledger)))
    return rows - len(list(ledger.reasons()))


def _read_in_python(path: Path, _scratch: Path) -> int:
    """The same columns by opentelemetry-proto, as one would write it."""
    count, rows, text = 0, sides(), path.read_bytes()
    at = 0
    while at < len(text):
        end = at + 4 + int.from_bytes(text[at : at + 4], "big")
        for resource in TracesData.FromString(text[at + 4 : end]).resource_spans:
            of = _said(resource.resource.attributes)
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                rows.add(_row(span, of, count + rows.count))
        at = end
        if rows.count >= 50_000:
            count += rows.take().records
    return count + rows.take().records


def _row(span: Span, resource: dict[str, Any], record: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "trace_id": span.trace_id,
        "span_id": int.from_bytes(span.span_id, "big", signed=True),
        "parent_id": int.from_bytes(span.parent_span_id, "big", signed=True) if span.parent_span_id else None,
        "kind": span.kind,
        "is_shared": False,
        "start_ns": span.start_time_unix_nano,
        "duration_ns": span.end_time_unix_nano - span.start_time_unix_nano,
        "name": span.name,
        "status": schema.STATUS_OK,
        "input": 0,
        "record": record,
    }
    attributes.take(row, _said(span.attributes))
    attributes.take(row, resource)
    return row


def _said(entries: Any) -> dict[str, Any]:
    return {entry.key: getattr(entry.value, entry.value.WhichOneof("value")) for entry in entries}


def _ingest(path: Path, scratch: Path) -> int:
    return int(ingest([path], scratch / "store").manifest.spans)


ARMS: dict[str, Callable[[Path, Path], int]] = {"rust": _read, "python": _read_in_python, "ingest": _ingest}


def _input(folder: Path, spans: int) -> Path:
    path = folder / f"spans-{spans}.pb"
    if not path.exists():
        chance = random.Random(1)
        messages = [_message(chance) for _ in range(min(MESSAGES, spans // MESSAGE_SPANS))]
        with path.open("wb") as file:
            for index in range(spans // MESSAGE_SPANS):
                message, traces_at = messages[index % len(messages)]
                # No trace occurs twice.
                for at in traces_at:
                    message[at : at + 4] = index.to_bytes(4, "big")
                file.write(len(message).to_bytes(4, "big") + message)
    return path


def _message(chance: random.Random) -> tuple[bytearray, list[int]]:
    """A message, and where in it the trace ids begin."""
    data = TracesData()
    resource = data.resource_spans.add()
    resource.resource.attributes.extend(
        [_text("service.name", f"service-{chance.randrange(50)}"), _text("host.name", "machine-17")]
    )
    spans = [_span(chance) for _ in range(MESSAGE_SPANS)]
    resource.scope_spans.add().spans.extend(spans)
    message = bytearray(data.SerializeToString())
    return message, [message.index(span.trace_id) for span in spans]


def _span(chance: random.Random) -> Span:
    stages = [round(chance.lognormvariate(10, 1)) for _ in schema.STAGES]
    start = START_NS + chance.randrange(10**12)
    method = chance.randrange(200)
    return Span(
        trace_id=chance.randbytes(16),
        span_id=chance.randbytes(8),
        parent_span_id=chance.randbytes(8),
        name=f"package.Service{method % 20}/Method{method}",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=start,
        end_time_unix_nano=start + sum(stages),
        attributes=[
            *(_number(f"rpc.stage.{stage}", ns) for stage, ns in zip(schema.STAGES, stages, strict=True)),
            _text("rpc.stage.source", "lib,kernel"),
            _number("rpc.stage.clock_bound", 1500),
            _number("rpc.request.size", chance.randrange(10**5)),
            _number("rpc.response.size", chance.randrange(10**6)),
            _number("rpc.request.wire_size", chance.randrange(10**5)),
            _number("rpc.response.wire_size", chance.randrange(10**6)),
            _number("rpc.cpu.ns", chance.randrange(10**7)),
            _text("peer.service", f"service-{method % 50}"),
            _text("peer.cluster", f"cluster-{method % 7}"),
            _text("rpc.system", "grpc"),
            _text("rpc.service", f"package.Service{method % 20}"),
            _text("rpc.method", f"Method{method}"),
            _number("rpc.grpc.status_code", 0),
            _text("server.address", "10.0.17.3"),
            _number("server.port", 50051),
            _text("network.type", "ipv4"),
            _text("network.transport", "tcp"),
            _number("thread.id", chance.randrange(64)),
            _text("thread.name", f"worker-{chance.randrange(64)}"),
            _text("deployment.environment.name", "production"),
        ],
    )


def _text(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=text))


def _number(key: str, number: int) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(int_value=number))
