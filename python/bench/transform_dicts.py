"""Dictionaries and bytes: `scotfree.transform` beside protobuf's own library (upb), printed and not judged.

    python -m bench.transform_dicts

Each arm does one kind of message again and again in turns with the others, on the thread's own processor time.
protobuf's `parse` and `serialize` stop at its objects, whose fields are then still to be read or set one by one;
`MessageToDict` and `ParseDict` make JSON's values: base64 for bytes, text for 64 bits. The arm `read` walks every
field of protobuf's object, as who wants the values has to.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, json_format
from google.protobuf.internal import api_implementation
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from scotfree.transform import Schema

ROUNDS = 15
ROUND_S = 0.01
NAME = "opentelemetry.proto.trace.v1.TracesData"
BATCH = 32


def schema() -> Schema:
    """The traces' types."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (common_pb2, resource_pb2, trace_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    return Schema(files.SerializeToString())


def traces(spans: int) -> Any:
    """A message of so many spans, each with eight attributes."""
    made = trace_pb2.TracesData()
    scope = made.resource_spans.add().scope_spans.add()
    for at in range(spans):
        span = scope.spans.add(name=f"GET /cart/{at}", kind=2, trace_id=bytes(range(16)), span_id=bytes(range(8)))
        span.start_time_unix_nano, span.end_time_unix_nano = (
            1_700_000_000_000_000_000 + at,
            1_700_000_000_000_900_000,
        )
        for attribute in range(4):
            span.attributes.add(key=f"text.{attribute}").value.string_value = "a value of some length"
            span.attributes.add(key=f"number.{attribute}").value.int_value = attribute * 1000
    return made


def read(message: Any) -> dict[str, Any]:
    """Every field that is there, by protobuf's own calls; bytes stay bytes."""
    found: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        else:
            found[field.name] = [read(of) for of in value] if field.is_repeated else read(value)
    return found


def arms(ours: Schema, spans: int) -> tuple[int, dict[str, Callable[[], object]]]:
    """How many bytes a message has, and what is done with it, by name."""
    message = traces(spans)
    data = message.SerializeToString()
    as_json = json_format.MessageToDict(message, preserving_proto_field_name=True)
    as_dict = ours.decode(NAME, data)
    many = [data] * BATCH
    parse = trace_pb2.TracesData.FromString
    of_json = trace_pb2.TracesData
    return len(data), {
        "bytes to dict, ours": lambda: ours.decode(NAME, data),
        f"bytes to dict, ours, {BATCH} at once": lambda: ours.decode_many(NAME, many),
        "bytes to dict, parse and MessageToDict": lambda: json_format.MessageToDict(
            parse(data), preserving_proto_field_name=True
        ),
        "bytes to dict, parse and read": lambda: read(parse(data)),
        "bytes to protobuf's object, parse alone": lambda: parse(data),
        "dict to bytes, ours": lambda: ours.encode(NAME, as_dict),
        "dict to bytes, ParseDict and serialize": lambda: json_format.ParseDict(
            as_json, of_json()
        ).SerializeToString(),
        "dict to bytes, constructor and serialize": lambda: of_json(**as_dict).SerializeToString(),
        "protobuf's object to bytes, serialize alone": message.SerializeToString,
    }


def measured(doing: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Microseconds of each, the median of rounds in turns."""
    times: dict[str, list[float]] = {name: [] for name in doing}
    for _ in range(ROUNDS):
        for name, do in doing.items():
            count, took, began = 0, 0.0, time.thread_time()
            while took < ROUND_S:
                do()
                count += 1
                took = time.thread_time() - began
            times[name].append(took / count * 1e6 / (BATCH if "at once" in name else 1))
    return {name: statistics.median(of) for name, of in times.items()}


def main() -> None:
    """Prints messages of one, ten and a hundred spans."""
    ours = schema()
    print(f"protobuf's library: {api_implementation.Type()}")
    for spans in (1, 10, 100):
        size, doing = arms(ours, spans)
        print(f"\n{spans} spans, {size} bytes")
        for name, micros in measured(doing).items():
            print(f"  {name:45} {micros:9.1f} us {size / micros:7.0f} MB/s")


if __name__ == "__main__":
    main()
