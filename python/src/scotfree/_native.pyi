"""The kernels in Rust (crates/scotfree-python): columns in as buffers, columns out as bytes."""

from typing import Any

import numpy as np
from typing_extensions import Buffer

Column = Buffer | np.ndarray[Any, Any]

def tree(trace_ids: Column, span_ids: Column, parent_ids: Column, has_parent: Column) -> list[bytes]:
    """Descendants, ancestors (u32) and whether a call is on a ring (u8)."""
