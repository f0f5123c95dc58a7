"""Descriptors of a set with every kind of field, as protobuf's own library writes and uses them."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Field = descriptor_pb2.FieldDescriptorProto
NUMBERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")
KINDS = (*NUMBERS, "bool", "float", "double", "string", "bytes", "enum", "message")
KEYS = (*NUMBERS, "bool", "string")
COLOURS = {"GREY": 0, "RED": 1, "BLUE": -7}


def file(syntax: str) -> descriptor_pb2.FileDescriptorProto:
    """A file of proto2 or proto3: fields of each kind, one and many, maps, a oneof."""
    made = descriptor_pb2.FileDescriptorProto(name=f"{syntax}.proto", package=syntax, syntax=syntax)
    colours = made.enum_type.add(name="Colour")
    for name, number in COLOURS.items():
        colours.value.add(name=name, number=number)
    of = made.message_type.add(name="All")
    for at, kind in enumerate(KINDS):
        add(of, f"one_{kind}", 1 + at, kind, syntax)
        add(of, f"many_{kind}", 41 + at, kind, syntax, Field.LABEL_REPEATED)
    of.oneof_decl.add(name="choice")
    for at, kind in enumerate(("int32", "string", "message")):
        add(of, f"either_{kind}", 71 + at, kind, syntax).oneof_index = 0
    for at, key in enumerate(KEYS):
        entry_of(of, f"by_{key}", 81 + at, key, KINDS[at + 5], syntax)
    needing = made.message_type.add(name="Needing")
    label = Field.LABEL_REQUIRED if syntax == "proto2" else Field.LABEL_OPTIONAL
    add(needing, "it", 1, "int32", syntax, label)
    list_of = made.message_type.add(name="List")
    list_of.field.add(name="of", number=3, type=Field.TYPE_MESSAGE, type_name=f".{syntax}.Needing", label=3)
    made.message_type.add(name="Nothing")
    return made


def add(
    of: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, syntax: str, label: Any = 1
) -> descriptor_pb2.FieldDescriptorProto:
    """A field of a kind."""
    field = of.field.add(name=name, number=number, type=getattr(Field, f"TYPE_{kind.upper()}"), label=label)
    if kind == "enum":
        field.type_name = f".{syntax}.Colour"
    if kind == "message":
        field.type_name = f".{syntax}.All"
    return field


def entry_of(
    of: descriptor_pb2.DescriptorProto, name: str, number: int, key: str, value: str, syntax: str
) -> None:
    """A map."""
    entry = of.nested_type.add(name=name.title().replace("_", "") + "Entry")
    entry.options.map_entry = True
    add(entry, "key", 1, key, syntax)
    add(entry, "value", 2, value, syntax)
    of.field.add(
        name=name, number=number, type=Field.TYPE_MESSAGE, label=3, type_name=f".{syntax}.All.{entry.name}"
    )


@functools.cache
def descriptors() -> bytes:
    """The whole set."""
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file("proto2"), file("proto3")]).SerializeToString())


@functools.cache
def oracle(name: str) -> Any:
    """The class that protobuf's own library makes of a message."""
    pool = descriptor_pool.DescriptorPool()
    for made in (file("proto2"), file("proto3")):
        pool.Add(made)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def filled(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """A message of `All`, by its dictionary: some fields, numbers of all widths, texts of all letters."""
    message: dict[str, Any] = {}
    for kind in KINDS:
        if kind == "message" and depth >= 3:
            continue
        if chance.random() < 0.4:
            message[f"one_{kind}"] = value(chance, kind, depth)
        if chance.random() < 0.3:
            message[f"many_{kind}"] = [value(chance, kind, depth) for _ in range(chance.randint(1, 5))]
    if chance.random() < 0.5:
        kind = chance.choice(("int32", "string") if depth >= 3 else ("int32", "string", "message"))
        message[f"either_{kind}"] = value(chance, kind, depth)
    for at, key in enumerate(KEYS):
        kind = KINDS[at + 5]
        if chance.random() < 0.3 and (kind != "message" or depth < 3):
            keys = [value(chance, key, depth) for _ in range(chance.randint(1, 3))]
            message[f"by_{key}"] = {its: value(chance, kind, depth) for its in keys}
    return message


def value(chance: random.Random, kind: str, depth: int) -> Any:
    """A value of a kind, never zero nor empty."""
    plain: dict[str, Callable[[], Any]] = {
        "message": lambda: filled(chance, depth + 1),
        "bool": lambda: True,
        "enum": lambda: chance.choice(["RED", "BLUE"]),
        "double": lambda: chance.choice([chance.gauss(0, 1e9) or 1.0, float("inf"), 1e-300]),
        "float": lambda: chance.choice([0.5, -1234.25, float("inf")]),
        "string": lambda: "".join(chance.choice("aZ é€🙂") for _ in range(chance.randint(1, 40))),
        "bytes": lambda: chance.randbytes(chance.randint(1, 40)),
    }
    if kind in plain:
        return plain[kind]()
    bits = chance.randint(1, 64 if "64" in kind else 32)
    if kind.startswith(("u", "fixed")):
        return chance.randint(1, 2**bits - 1)
    return chance.choice([-1, 1]) * chance.randint(1, 2 ** max(bits - 1, 1) - 1)
