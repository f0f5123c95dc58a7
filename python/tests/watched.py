"""A watch in this process, whose rounds a test makes itself, and what is sent to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind

from scotfree.study.ingest.limits import Limits
from scotfree.study.watch import receiver
from scotfree.study.watch.answers import PROTOBUF
from scotfree.study.watch.watching import Settings, Watch, serve_page

HOST = "127.0.0.1"
NOW_NS = 1_760_000_000_000_000_000


@dataclass
class Watched:
    """A watch that receives, and its page."""

    watch: Watch
    page: ThreadingHTTPServer

    def post(
        self, body: bytes, kind: str = PROTOBUF, path: str = "/v1/traces", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the answer."""
        said = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return ask(self.watch.receiver, path, "POST", body, said)

    def get(self, path: str) -> tuple[int, str]:
        """A page."""
        status, _, body = ask(self.page, path)
        return status, body.decode()


def ask(
    server: ThreadingHTTPServer,
    path: str,
    verb: str = "GET",
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """One request on a connection of its own."""
    with closing(HTTPConnection(HOST, server.server_address[1], timeout=30)) as connection:
        connection.request(verb, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


@contextmanager
def watching(folder: Path, *, bytes_max: int = 1 << 30, keep_s: float = 3600, **senders: Any) -> Iterator[Watched]:
    """It runs within."""
    settings = Settings(
        folder=folder,
        listen=(HOST, 0),
        serve=(HOST, 0),
        every_s=5,
        keep_s=keep_s,
        bytes_max=bytes_max,
        ingest=Limits(),
        senders=receiver.Limits(**senders),
    )
    watch = Watch(settings)
    page = serve_page(watch.site, settings.serve)
    with ExitStack() as stack:
        stack.callback(watch.close)
        for server in (watch.receiver, page):
            thread = threading.Thread(target=server.serve_forever, args=[0.01])
            thread.start()
            stack.callback(server.server_close)
            stack.callback(thread.join)
            stack.callback(server.shutdown)
        yield Watched(watch, page)


def message(spans: int, first: int = 1, service: str = "cart") -> TracesData:
    """Spans of one service, each a trace of its own."""
    data = TracesData()
    resource = data.resource_spans.add()
    attribute = resource.resource.attributes.add(key="service.name")
    attribute.value.string_value = service
    resource.scope_spans.add().spans.extend(
        Span(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name="Get",
            kind=Span.SPAN_KIND_SERVER,
            start_time_unix_nano=NOW_NS,
            end_time_unix_nano=NOW_NS + 1000,
        )
        for number in range(first, first + spans)
    )
    return data


def bytes_of(spans: int, first: int = 1, service: str = "cart") -> bytes:
    """The same as it is sent."""
    found: bytes = message(spans, first, service).SerializeToString()
    return found


def sdk_sends(url: str, spans: int, *, service: str = "cart", is_packed: bool = False) -> None:
    """A program with OpenTelemetry's SDK that makes spans and ends."""
    compression = Compression.Gzip if is_packed else Compression.NoCompression
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{url}/v1/traces", compression=compression)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=max(spans, 512)))
    tracer = provider.get_tracer("test")
    for _ in range(spans):
        tracer.start_span("Get", kind=SpanKind.SERVER).end()
    provider.shutdown()
