"""One name for a gRPC method, which clients and servers of some languages write with a slash before it."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

# Package, service and method, as protobuf's style has them: no path of HTTP is meant.
_FULL_METHOD: Final = r"^/(?P<bare>(?:[A-Za-z_][A-Za-z0-9_]*\.)+[A-Z][A-Za-z0-9_]*/[A-Z][A-Za-z0-9_]*)$"
TWICE: Final = "a method named with and without a slash before it: one name"


def bare(texts: pa.Array) -> pa.Array:
    """Texts, of which full names of gRPC methods have no slash before them."""
    return pc.coalesce(pc.struct_field(pc.extract_regex(texts, _FULL_METHOD), "bare"), texts)


def twice(texts: pa.Array) -> int:
    """How many names are there in both ways."""
    given = pc.struct_field(pc.extract_regex(texts, _FULL_METHOD), "bare")
    return int(pc.sum(pc.is_in(pc.unique(given.drop_null()), value_set=texts)).as_py() or 0)
