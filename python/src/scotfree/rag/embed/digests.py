"""Digests of large files, remembered for as long as the files are as they were.

A file counts as it was while its device, inode, size and both times are: whoever writes to it, puts another in its
place or sets its time back changes at least the time of its last change, which no program sets.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from scotfree.cache_folder import cache_folder, write_whole

# A file that was changed less than this ago may be changed once more within one tick of its times: of the coarsest
# file systems two seconds.
_SETTLED_NS: Final = 3_000_000_000


def of_file(path: Path) -> bytes:
    """SHA-256 of a file; made again where nothing, or nothing of the file as it is now, is remembered."""
    state, note = _state(path), _note(path)
    if note and (known := _remembered(note, state)):
        return known
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").digest()
    if note and _state(path) == state and time.time_ns() - max(state[-2:]) > _SETTLED_NS:
        _remember(note, state, found)
    return found


def _state(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _note(path: Path) -> Path | None:
    """Where its digest is remembered; nowhere, for who has no home."""
    folder = cache_folder("digests")
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
    return folder and folder / f"{name}.json"


def _remembered(note: Path, state: list[int]) -> bytes | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        said = json.loads(note.read_bytes())
        if said["state"] == state:
            return bytes.fromhex(said["sha256"])
    return None


def _remember(note: Path, state: list[int], digest: bytes) -> None:
    """Where that cannot be written, it is made again next time."""
    write_whole(note, json.dumps({"state": state, "sha256": digest.hex()}).encode())
