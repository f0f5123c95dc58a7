"""What became of a call: OK or the name of an error, from the attributes that tracers write.

Names are gRPC's; statuses of HTTP are put to them as Google's API design guide does, so that calls of both kinds
count together in F23.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from scotfree.study import schema

# By gRPC's number.
GRPC: Final = (
    schema.STATUS_OK,
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
)
HTTP: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
GRPC_KEYS: Final = ("rpc.response.status_code", "rpc.grpc.status_code", "grpc.status_code", "grpc.status")
HTTP_KEYS: Final = ("http.response.status_code", "http.status_code")
# Texts, of use only where something else says that the call failed.
TEXT_KEYS: Final = ("error.type",)
# An error of which nothing more is known.
ERROR: Final = "ERROR"


def status_of(attributes: Mapping[str, Any]) -> str:
    """OK, or the error's name. A number of the protocol says more than a flag, so it comes first."""
    return _by_grpc(attributes) or _by_http(attributes) or (ERROR if _flagged(attributes) else schema.STATUS_OK)


def _by_grpc(attributes: Mapping[str, Any]) -> str | None:
    for key in GRPC_KEYS:
        code = _code(attributes.get(key))
        if code is not None and 0 < code < len(GRPC):
            return GRPC[code]
        if isinstance(text := attributes.get(key), str) and text.upper() in GRPC[1:]:
            return text.upper()
    return None


def _by_http(attributes: Mapping[str, Any]) -> str | None:
    for key in HTTP_KEYS:
        code = _code(attributes.get(key))
        if code is not None and 400 <= code < 600:
            return HTTP.get(code, f"HTTP_{code}")
    return None


def _flagged(attributes: Mapping[str, Any]) -> bool:
    """`error` is a flag in OpenTracing and a text, whatever it says, in Zipkin."""
    error = attributes.get("error")
    if isinstance(error, str):
        return error.lower() != "false"
    return error is True or attributes.get("otel.status_code") == "ERROR"


def _code(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return (
        int(value) if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6 else None
    )
