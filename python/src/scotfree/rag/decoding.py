"""JSON as this package writes it beside passages: read often, and with nothing around it."""

from __future__ import annotations

import json
from typing import Any, Final

# Half of what `json.loads` takes of a short text is not for reading it.
_READ: Final = json.JSONDecoder().raw_decode


def decoded(text: str) -> Any:
    """What a text says; `ValueError`: it is damaged."""
    try:
        value, end = _READ(text)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    if end != len(text):
        raise ValueError("more stands behind it")
    return value
