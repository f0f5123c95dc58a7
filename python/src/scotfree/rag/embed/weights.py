"""Where the weights of a safetensors file lie, and their numbers."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from scotfree.rag.embed.embedder import Vectors

# A header longer than that is none.
_HEADER_MAX: Final = 100_000_000
# Kinds of numbers that weights may be of, with their bytes.
SINGLE, HALF, BRAIN = "F32", "F16", "BF16"
_BYTES: Final = {SINGLE: 4, HALF: 2, BRAIN: 2}


@dataclass(frozen=True)
class Tensor:
    """Where a weight lies in its file, in bytes, and of what kind its numbers are."""

    shape: list[int]
    start: int
    length: int
    kind: str = SINGLE


def tensors(path: Path) -> dict[str, Tensor]:
    """Where the weights lie in a safetensors file; a `ValueError` says why it is none."""
    size, said = _header(path)
    found = {}
    for name, entry in said.items():
        if name == "__metadata__" or entry["dtype"] not in _BYTES:
            # What is no weight, such as the numbers of places, is not asked for.
            continue
        start, end = entry["data_offsets"]
        found[name] = Tensor(entry["shape"], 8 + size + start, end - start, entry["dtype"])
        wanted = _BYTES[entry["dtype"]] * math.prod(entry["shape"])
        if end - start != wanted or 8 + size + end > path.stat().st_size:
            raise ValueError(f"{path}: it is cut off, or damaged, at {name}")
    return found


def numbers(path: Path, tensor: Tensor) -> Vectors:
    """A weight's, in single precision."""
    with path.open("rb") as file:
        file.seek(tensor.start)
        data = file.read(tensor.length)
    if tensor.kind == SINGLE:
        found = np.frombuffer(data, np.float32)
    elif tensor.kind == HALF:
        found = np.frombuffer(data, np.float16).astype(np.float32)
    else:
        # The first half of a number of single precision.
        found = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return found.reshape(tensor.shape)


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    """Its length in bytes, without that of the length itself, and what it says."""
    with path.open("rb") as file, suppress(ValueError):
        size = int.from_bytes(file.read(8), "little")
        said = json.loads(file.read(size)) if size <= _HEADER_MAX else None
        if isinstance(said, dict):
            return size, said
    raise ValueError(f"{path}: it is no safetensors file")
