"""JSON as this package writes it beside passages: read often, and with nothing around it."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Final

# Half of what `json.loads` takes of a short text is not for reading it.
_READ: Final = json.JSONDecoder().raw_decode


# Metadata that many documents have alike, as `{"suffix": ".md"}`, are decoded once.
_ALIKE_MAX: Final = 1024
_SHORT_MAX: Final = 200
_PLAIN: Final = (str, int, float, type(None))


def metadata(text: str) -> dict[str, Any]:
    """A document's metadata, the caller's own to change; `ValueError`: they are damaged."""
    known = _alike(text) if len(text) <= _SHORT_MAX else None
    return _object(text) if known is None else known.copy()


@lru_cache(maxsize=_ALIKE_MAX)
def _alike(text: str) -> dict[str, Any] | None:
    """Nothing, where a copy would share a list or the like with it."""
    found = _object(text)
    return found if all(isinstance(value, _PLAIN) for value in found.values()) else None


def _object(text: str) -> dict[str, Any]:
    found = decoded(text)
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def decoded(text: str) -> Any:
    """What a text says; `ValueError`: it is damaged."""
    try:
        value, end = _READ(text)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if end != len(text):
        raise ValueError("more stands behind it")
    return value
