"""What OTLP's senders are answered: `ExportTraceServiceResponse`, and `google.rpc.Status` for errors.

Both in the form of the request, as the specification of OTLP/HTTP asks for.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Final

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
# Numbers of google.rpc.Code.
_CODES: Final = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.REQUEST_TIMEOUT: 4,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: 8,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
}
_UNIMPLEMENTED: Final = 12


def taken(kind: str, rejected: int, message: str) -> bytes:
    """All spans were taken, or all but some, which are not to be sent again; a message alone warns."""
    if kind == JSON:
        partial = {"rejectedSpans": str(rejected), "errorMessage": message}
        return _json({"partialSuccess": partial} if message else {})
    return _bytes(1, _number(1, rejected) + _bytes(2, message.encode())) if message else b""


def error(kind: str, status: HTTPStatus, message: str) -> bytes:
    """Nothing of it was taken."""
    code = _CODES.get(status, _UNIMPLEMENTED)
    if kind == JSON:
        return _json({"code": code, "message": message})
    return _number(1, code) + _bytes(2, message.encode())


def _json(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
