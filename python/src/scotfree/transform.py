"""Messages of Protobuf between bytes and dictionaries, by descriptors that are read at run time.

    # protoc --include_imports --descriptor_set_out=app.bin app.proto
    schema = Schema(Path("app.bin").read_bytes())
    message = schema.decode("pkg.Type", data)
    data = schema.encode("pkg.Type", message)

A message is a dict by the fields' names: numbers, truths, str, bytes, the names of enumerations' numbers, dicts
for messages and maps, lists for repeated fields. A field that is not there is no key; None says the same. What the
descriptors do not know of a message is under the key `UNKNOWN_FIELDS`, as bytes, and is written again.
"""

from __future__ import annotations

from typing import Final

from scotfree._native import DecodeError, FieldTypeError, FieldValueError, Schema, SchemaError

__all__ = ["UNKNOWN_FIELDS", "DecodeError", "FieldTypeError", "FieldValueError", "Schema", "SchemaError"]

UNKNOWN_FIELDS: Final = ""
"""The key of what the descriptors do not know; no field has this name."""
