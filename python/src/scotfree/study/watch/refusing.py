"""Why a request is not taken, and what its sender is told."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from scotfree.connections import RETRY_AFTER_S


@dataclass(frozen=True)
class Why:
    """A reason: few, so that each can be counted and said once."""

    status: HTTPStatus
    # As it is counted.
    name: str
    # After so many seconds the sender may try again; none: it is not to.
    retry_after_s: int | None = None


BUSY: Final = Why(HTTPStatus.TOO_MANY_REQUESTS, "more at once than fits", RETRY_AFTER_S)
DISK: Final = Why(HTTPStatus.SERVICE_UNAVAILABLE, "the disk did not take it", RETRY_AFTER_S)
KEPT: Final = Why(HTTPStatus.SERVICE_UNAVAILABLE, "as much as --max-bytes keeps", RETRY_AFTER_S)
ENDING: Final = Why(HTTPStatus.SERVICE_UNAVAILABLE, "came while it ended", RETRY_AFTER_S)
SLOW: Final = Why(HTTPStatus.REQUEST_TIMEOUT, "did not come to an end in time")
HEAD: Final = Why(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "with too large a head")
LARGE: Final = Why(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too large")
DAMAGED: Final = Why(HTTPStatus.BAD_REQUEST, "no OTLP")
KIND: Final = Why(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "of a kind that is not read")
SIGNAL: Final = Why(HTTPStatus.NOT_FOUND, "metrics, logs or profiles")
BROWSER: Final = Why(HTTPStatus.FORBIDDEN, "from a browser's page")
PATH: Final = Why(HTTPStatus.NOT_FOUND, "at another path")
METHOD: Final = Why(HTTPStatus.METHOD_NOT_ALLOWED, "no POST")
LENGTH: Final = Why(HTTPStatus.LENGTH_REQUIRED, "without a length")
PROTOCOL: Final = Why(HTTPStatus.BAD_REQUEST, "no HTTP/1.1")


class Refused(Exception):
    """A request that is answered by an error, in words for its sender."""

    def __init__(self, why: Why, message: str) -> None:
        super().__init__(message)
        self.why = why
