"""Messages between bytes and dictionaries, beside protobuf's own library."""

from __future__ import annotations

import gc
import random
import re
import threading
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.message import DecodeError as TheirError
from made_descriptors import COLOURS, KINDS, descriptors, filled, oracle
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

from bench import transform_dicts
from scotfree.transform import (
    UNKNOWN_FIELDS,
    DecodeError,
    FieldTypeError,
    FieldValueError,
    Schema,
    SchemaError,
)

ALL = ("proto2.All", "proto3.All")


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema(descriptors())


def as_theirs(name: str, message: dict[str, Any]) -> Any:
    """The dictionary in protobuf's own class, filled field by field."""
    theirs = oracle(name)()
    fill(theirs, message)
    return theirs


def fill(theirs: Any, message: dict[str, Any]) -> None:
    for name, value in message.items():
        numbered = COLOURS.get(value, value) if isinstance(value, str) and "enum" in name else value
        if isinstance(value, dict) and name.startswith("by_"):
            for key, inner in value.items():
                if isinstance(inner, dict):
                    fill(getattr(theirs, name)[key], inner)
                else:
                    getattr(theirs, name)[key] = COLOURS.get(inner, inner) if name == "by_bool" else inner
        elif isinstance(value, dict):
            getattr(theirs, name).SetInParent()
            fill(getattr(theirs, name), value)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for inner in value:
                fill(getattr(theirs, name).add(), inner)
        elif isinstance(value, list):
            getattr(theirs, name).extend(COLOURS.get(of, of) if "enum" in name else of for of in value)
        else:
            setattr(theirs, name, numbered)


@pytest.mark.parametrize("name", ALL)
def test_random_messages_are_those_of_protobuf(schema: Schema, name: str) -> None:
    chance = random.Random(7)
    for _ in range(150):
        message = filled(chance)
        theirs = as_theirs(name, message)
        assert schema.decode(name, theirs.SerializeToString()) == message
        again = oracle(name)()
        again.ParseFromString(schema.encode(name, message))
        assert again == theirs


def test_every_kind_is_tried() -> None:
    chance = random.Random(7)
    keys = {key for _ in range(150) for key in filled(chance)}
    assert keys >= {f"{count}_{kind}" for count in ("one", "many") for kind in KINDS}


def test_a_batch_is_its_messages_one_by_one(schema: Schema) -> None:
    chance = random.Random(8)
    messages = [filled(chance) for _ in range(150)]
    encoded = schema.encode_many("proto3.All", messages)
    assert encoded == [schema.encode("proto3.All", message) for message in messages]
    assert schema.decode_many("proto3.All", encoded) == messages
    assert schema.decode_many("proto3.All", []) == [] == schema.encode_many("proto3.All", [])


@pytest.mark.parametrize("name", ALL)
def test_every_prefix_is_taken_or_refused_as_by_protobuf(schema: Schema, name: str) -> None:
    chance, refused = random.Random(9), 0
    whole = schema.encode(name, filled(chance))
    for length in range(len(whole)):
        theirs = oracle(name)()
        try:
            theirs.ParseFromString(whole[:length])
        except TheirError:
            refused += 1
            with pytest.raises(DecodeError) as error:
                schema.decode(name, whole[:length])
            assert error.value.at is not None and error.value.at <= length
        else:
            again = oracle(name)()
            again.ParseFromString(schema.encode(name, schema.decode(name, whole[:length])))
            assert again == theirs
    assert refused > len(whole) / 2


def test_damaged_messages_give_a_dictionary_or_an_error(schema: Schema) -> None:
    chance, outcomes = random.Random(10), [0, 0]
    for _ in range(1500):
        damaged = bytearray(schema.encode("proto3.All", filled(chance, 2)))
        for _ in range(chance.randint(1, 4)):
            if damaged:
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            message = schema.decode("proto3.All", damaged)
        except DecodeError:
            outcomes[0] += 1
        else:
            outcomes[1] += 1
            kept = schema.encode("proto3.All", message)
            assert repr(schema.decode("proto3.All", kept)) == repr(message)
    assert min(outcomes) > 100


def test_defaults_and_numbers_of_enumerations(schema: Schema) -> None:
    assert schema.decode("proto3.All", b"") == {}
    whole = schema.decode("proto3.All", b"", with_defaults=True)
    theirs = json_format.MessageToDict(
        oracle("proto3.All")(), always_print_fields_with_no_presence=True, preserving_proto_field_name=True
    )
    assert whole.keys() == theirs.keys()
    assert whole["one_enum"] == "GREY" and whole["many_int32"] == [] and whole["by_bool"] == {}
    assert whole["one_bytes"] == b"" and whole["one_double"] == 0.0 and whole["one_bool"] is False
    # That a field is absent says something in proto2.
    assert schema.decode("proto2.All", b"", with_defaults=True).keys() == {
        name for name in whole if name.startswith(("many_", "by_"))
    }
    blue = schema.encode("proto3.All", {"one_enum": "BLUE", "many_enum": ["RED", 1, 5]})
    assert schema.decode("proto3.All", blue) == {"one_enum": "BLUE", "many_enum": ["RED", "RED", 5]}
    numbers = schema.decode("proto3.All", blue, enum_numbers=True)
    assert numbers == {"one_enum": -7, "many_enum": [1, 1, 5]}
    assert schema.encode("proto3.All", numbers) == blue


def test_unknown_fields_are_kept_and_written_again(schema: Schema) -> None:
    message = schema.encode("proto3.All", {"one_int32": 7, "one_message": {"one_string": "x"}})
    seen = schema.decode("proto3.Needing", message)
    assert seen["it"] == 7 and seen.keys() == {"it", UNKNOWN_FIELDS}
    assert schema.decode("proto3.All", schema.encode("proto3.Needing", seen)) == schema.decode(
        "proto3.All", message
    )
    assert schema.decode("proto3.Needing", message, unknown_fields=False) == {"it": 7}
    # A number that a closed enumeration does not know is an unknown field, that of a map's entry with its key.
    strange = b"\x80\x01\x09" + b"\xda\x05\x04\x08\x01\x10\x09"
    kept = schema.decode("proto2.All", strange)
    assert kept == {UNKNOWN_FIELDS: strange}
    assert schema.decode("proto2.All", schema.encode("proto2.All", kept)) == kept
    # Of several numbers of an entry the last one counts; an entry without one is one, whatever else is in it.
    last = b"\xda\x05\x06\x08\x01\x10\x01\x10\x09"
    assert schema.decode("proto2.All", last) == {UNKNOWN_FIELDS: last}
    assert schema.decode("proto2.All", b"\xda\x05\x04\x08\x01\x18\x05") == {"by_bool": {True: "GREY"}}
    for wrong in (b"\x08", b"\x0b", b"\x00\x00", b"\xff"):
        with pytest.raises(FieldValueError, match="unknown fields"):
            schema.encode("proto3.All", {UNKNOWN_FIELDS: wrong})
    with pytest.raises(FieldTypeError, match="unknown fields as bytes"):
        schema.encode("proto3.All", {UNKNOWN_FIELDS: "text"})


def test_a_text_of_proto2_that_is_none_is_kept(schema: Schema) -> None:
    message = b"\x72\x03a\xff\xfe"
    seen = schema.decode("proto2.All", message)
    assert seen == {"one_string": "a\udcff\udcfe"}
    assert schema.encode("proto2.All", seen) == message
    with pytest.raises(DecodeError, match=r"proto3\.All, one_string: byte 0: field 14 is no UTF-8"):
        schema.decode("proto3.All", message)
    with pytest.raises(FieldValueError, match="lone surrogates"):
        schema.encode("proto3.All", seen)


TYPES = [
    ("one_int32", "seven", "int of 32 bits", "str"),
    ("one_int32", 7.0, "int of 32 bits", "float"),
    ("one_bool", 1, "a bool", "int"),
    ("one_double", "7", "a float", "str"),
    ("one_string", b"x", "a str", "bytes"),
    ("one_bytes", "x", "bytes", "str"),
    ("one_message", [], "a dict", "list"),
    ("many_int32", 7, "a list or tuple", "int"),
    ("many_string", "text", "a list or tuple", "str"),
    ("by_string", [], "a dict", "list"),
    ("one_enum", 1.5, "a str or an int", "float"),
    ("one_enum", [], "a str or an int", "list"),
]
VALUES = [
    ("one_int32", 2**31, "int of 32 bits"),
    ("one_int32", 2**200, "int of 32 bits"),
    ("one_uint32", -1, "not negative"),
    ("one_uint64", 2**64, "not negative"),
    ("one_sint64", -(2**63) - 1, "int of 64 bits"),
    ("one_float", 1e39, "a float of 32 bits"),
    ("one_double", 10**400, "a float"),
    ("one_enum", "PINK", "name or number"),
    ("one_enum", 2**31, "str or an int of 32 bits"),
]


@pytest.mark.parametrize(("field", "given", "expected", "named"), TYPES)
def test_a_value_of_another_type_is_named_with_its_path(
    schema: Schema, field: str, given: Any, expected: str, named: str
) -> None:
    with pytest.raises(FieldTypeError) as error:
        schema.encode("proto3.All", {"many_message": [{}, {"one_message": {field: given}}]})
    assert error.value.path == f"many_message[1].one_message.{field}"
    assert error.value.given == named and expected in error.value.expected
    assert str(error.value) == f"{error.value.path}: {named} was given; expected {error.value.expected}"
    assert isinstance(error.value, TypeError)


@pytest.mark.parametrize(("field", "given", "expected"), VALUES)
def test_a_value_that_a_field_cannot_hold_is_named_with_its_path(
    schema: Schema, field: str, given: Any, expected: str
) -> None:
    with pytest.raises(FieldValueError) as error:
        schema.encode("proto3.All", {"one_message": {field: given}})
    assert error.value.path == f"one_message.{field}" and expected in error.value.expected
    assert error.value.given.startswith(repr(given)[:70]) and len(error.value.given) < 100
    assert isinstance(error.value, ValueError)


def test_what_is_wrong_in_lists_maps_and_names_is_found(schema: Schema) -> None:
    cases: list[tuple[dict[Any, Any], str]] = [
        ({"many_int32": [1, 2, "x"]}, r"many_int32\[2\]: str was given; expected an int of 32 bits"),
        ({"by_int32": {1: b""}}, r"by_int32\[1\]: bytes was given"),
        ({"by_int32": {"x": 1}}, r"by_int32\['x'\].key: str was given"),
        ({"one_in32": 7}, "the key 'one_in32' was given; expected a field of proto3.All: one_int32, one_int64"),
        ({7: 7}, "int was given; expected a field's name as key"),
        ({"either_int32": 1, "either_string": "x"}, "either_string: 'x' was given; expected one field of a oneof"),
        ({"many_string": [None]}, r"many_string\[0\]: NoneType was given; expected a str"),
    ]
    for message, words in cases:
        with pytest.raises((FieldTypeError, FieldValueError), match=words):
            schema.encode("proto3.All", message)
    with pytest.raises(FieldTypeError, match="the message: list was given; expected a dict"):
        schema.encode("proto3.All", [])  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="there is no message"):
        schema.decode("pkg.Type", b"")
    assert schema.encode("proto3.All", {"one_int32": None, "many_int32": [], "by_int32": {}}) == b""


def test_required_fields(schema: Schema) -> None:
    with pytest.raises(DecodeError, match="required field 1 is not there"):
        schema.decode("proto2.Needing", b"")
    with pytest.raises(FieldValueError, match=r"of\[1\].it: nothing was given; expected a value"):
        schema.encode("proto2.List", {"of": [{"it": 0}, {}]})
    assert schema.encode("proto3.List", {"of": [{"it": 0}, {}]}) == b"\x1a\x00\x1a\x00"


def test_bytes_that_are_cut_are_told_with_their_field(schema: Schema) -> None:
    whole = schema.encode("proto3.All", {"one_message": {"many_message": [{}, {"one_string": "text"}]}})
    with pytest.raises(DecodeError) as error:
        schema.decode("proto3.All", whole[:-1])
    assert error.value.path == "one_message"
    spoiled = whole[:-1] + b"\xff"
    with pytest.raises(DecodeError, match="no UTF-8") as error:
        schema.decode("proto3.All", spoiled)
    assert error.value.path == "one_message.many_message[1].one_string"
    with pytest.raises(DecodeError) as error:
        schema.decode_many("proto3.All", [b"", spoiled])
    assert error.value.__notes__ == ["message 1 of the list"]
    with pytest.raises(FieldTypeError) as wrong:
        schema.encode_many("proto3.All", [{}, {"one_int32": ""}])
    assert wrong.value.__notes__ == ["message 1 of the list"]


def test_what_lies_too_deep_is_refused() -> None:
    def nested(depth: int) -> dict[str, Any]:
        message: dict[str, Any] = {}
        for _ in range(depth - 1):
            message = {"one_message": message}
        return message

    schema = Schema(descriptors())
    assert schema.decode("proto3.All", schema.encode("proto3.All", nested(100))) == nested(100)
    with pytest.raises(FieldValueError, match="not deeper in each other than depth_max"):
        schema.encode("proto3.All", nested(101))
    ring: dict[str, Any] = {}
    ring["one_message"] = ring
    with pytest.raises(FieldValueError, match="depth_max"):
        schema.encode("proto3.All", ring)
    deep = Schema(descriptors(), depth_max=400)
    encoded = deep.encode("proto3.All", nested(400))
    with pytest.raises(DecodeError, match="deeper than the limit, depth_max"):
        schema.decode("proto3.All", encoded)
    found: list[Any] = []
    # A thread's stack is smaller than the program's.
    before = threading.stack_size(1 << 20)
    thread = threading.Thread(target=lambda: found.append(deep.decode("proto3.All", encoded)))
    thread.start()
    thread.join()
    threading.stack_size(before)
    assert deep.encode("proto3.All", found[0]) == encoded
    with pytest.raises(ValueError, match="depth_max is 401; expected 1 to 400"):
        Schema(descriptors(), depth_max=401)


def test_limits_are_kept() -> None:
    small = Schema(descriptors(), message_bytes_max=100, slots_bytes_max=4096, unknown_fields_max=1)
    with pytest.raises(DecodeError, match="longer than the limit"):
        small.decode("proto3.All", bytes(101))
    # Three bytes on the wire, a message's slots in the arena.
    with pytest.raises(DecodeError, match="the arena may hold no more"):
        small.decode("proto3.All", b"\xca\x03\x00" * 33)
    with pytest.raises(DecodeError, match="more unknown fields than the limit"):
        small.decode("proto3.Needing", b"\x10\x01\x08\x01\x10\x01")


def test_a_million_elements(schema: Schema) -> None:
    message = {"many_int32": list(range(1_000_000)), "many_string": ["x"] * 1_000_000}
    encoded = schema.encode("proto3.All", message)
    assert schema.decode("proto3.All", encoded) == message
    theirs = oracle("proto3.All")()
    theirs.ParseFromString(encoded)
    assert len(theirs.many_string) == 1_000_000 and theirs.many_int32[-1] == 999_999


def test_threads_share_a_schema(schema: Schema) -> None:
    chance = random.Random(11)
    messages = [filled(chance) for _ in range(20)]
    wrong: list[dict[str, Any]] = []

    def work() -> None:
        for message in messages * 5:
            if schema.decode_many("proto3.All", schema.encode_many("proto3.All", [message] * 3)) != [message] * 3:
                wrong.append(message)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_python_runs_meanwhile_finds_an_arena_of_its_own(schema: Schema) -> None:
    message: dict[str, Any] = {"many_int64": [1, 2, 3], "one_string": "outer"}

    class Number:
        def __index__(self) -> int:
            gc.collect()
            assert schema.decode("proto3.All", schema.encode("proto3.All", message)) == message
            values.clear()
            return 7

    class Raising:
        def __index__(self) -> int:
            raise RuntimeError("its own error")

    values: list[Any] = [5, Number(), 6]
    encoded = schema.encode("proto3.All", {"many_int64": values, "one_string": "x"})
    assert schema.decode("proto3.All", encoded) == {"many_int64": [5, 7], "one_string": "x"}
    with pytest.raises(RuntimeError, match="its own error"):
        schema.encode("proto3.All", {"one_int64": Raising()})


def test_what_is_no_set_of_descriptors_is_refused() -> None:
    whole = descriptors()
    for wrong in (b"", b"text", whole[:-1], whole[: len(whole) // 3]):
        with pytest.raises(SchemaError):
            Schema(wrong)
    with pytest.raises(TypeError):
        Schema("app.bin")  # type: ignore[arg-type]


def test_types_are_named(schema: Schema) -> None:
    assert schema.types() == [f"{file}.{name}" for file in ("proto2", "proto3") for name in NAMES]
    assert repr(schema) == "<scotfree.transform.Schema of 8 types>"


NAMES = ("All", "Needing", "List", "Nothing")


def test_traces_are_read_as_by_protobuf() -> None:
    """Of a published set of files, which refer to each other."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (common_pb2, resource_pb2, trace_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    schema = Schema(files.SerializeToString())
    traces = trace_pb2.TracesData()
    span = traces.resource_spans.add().scope_spans.add().spans.add(name="get", kind=2, trace_id=b"t" * 16)
    span.attributes.add(key="n").value.int_value = 5
    seen = schema.decode("opentelemetry.proto.trace.v1.TracesData", traces.SerializeToString())
    assert seen["resource_spans"][0]["scope_spans"][0]["spans"] == [
        {
            "trace_id": b"t" * 16,
            "name": "get",
            "kind": "SPAN_KIND_SERVER",
            "attributes": [{"key": "n", "value": {"int_value": 5}}],
        }
    ]
    assert schema.encode("opentelemetry.proto.trace.v1.TracesData", seen) == traces.SerializeToString()


def test_what_the_page_shows_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/transform.md").read_text()
    ((program, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    (tmp_path / "shop.bin").write_bytes(shop())
    (tmp_path / "order.bin").write_bytes(b"\x0a\x03Eva\x12\x0e\x0a\x03tea\x11\0\0\0\0\0\0\x08\x40")
    monkeypatch.chdir(tmp_path)
    exec(program, {})
    assert capsys.readouterr().out == printed
    assert (tmp_path / "order.bin").read_bytes().endswith(b"\x12\x0a\x0a\x06a gift\x18\x01")


def shop() -> bytes:
    """The descriptors that the page says."""
    made = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order, line = made.message_type.add(name="Order"), made.message_type.add(name="Line")
    order.field.add(name="customer", number=1, type=9, label=1)
    order.field.add(name="lines", number=2, type=11, label=3, type_name=".shop.Line")
    order.field.add(name="total", number=3, type=18, label=1)
    for number, (name, kind) in enumerate((("what", 9), ("price", 1), ("count", 13)), 1):
        line.field.add(name=name, number=number, type=kind, label=1)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())


def test_what_is_measured_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(transform_dicts, "ROUNDS", 1)
    monkeypatch.setattr(transform_dicts, "ROUND_S", 1e-6)
    ours, spans = transform_dicts.schema(), transform_dicts.traces(3)
    data = spans.SerializeToString()
    seen = ours.decode(transform_dicts.NAME, data)
    assert transform_dicts.read(spans)["resource_spans"][0].keys() == seen["resource_spans"][0].keys()
    for do in transform_dicts.arms(ours, 3)[1].values():
        do()
    transform_dicts.main()
    printed = capsys.readouterr().out
    assert printed.count("bytes to dict, ours") == 6 and "100 spans" in printed
