"""Arrays that are lent to Rust."""

from __future__ import annotations

from typing import Any

import numpy as np


def lent(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Flat, and not to be written to while Rust reads it."""
    flat = np.ascontiguousarray(values).reshape(-1).view()
    flat.flags.writeable = False
    return flat
