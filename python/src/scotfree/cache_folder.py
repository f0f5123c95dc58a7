"""Where a user's programs keep what they could make again, as the XDG base directories have it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def cache_folder(name: str) -> Path | None:
    """Scotfree's of that name, there or not; none, for who has no home."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with suppress(RuntimeError):
        return Path(home).expanduser() / "scotfree" / name
    return None


def write_whole(path: Path, content: bytes) -> None:
    """Whole or not at all, also where two processes write it; where it cannot be written, it is made again."""
    begun = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            begun.write_bytes(content)
            begun.replace(path)
        finally:
            # What a full disk has left takes room that is wanted.
            begun.unlink(missing_ok=True)
