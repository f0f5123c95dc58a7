"""Which files are read, in which form, and how one that was read is known again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scotfree.study.ingest import wide
from scotfree.study.ingest.mapping import ColumnMap
from scotfree.study.ingest.opening import head_of
from scotfree.study.ingest.reader import Reader, TableReader
from scotfree.study.store import AGGREGATES, INDEX, MANIFEST
from scotfree.study.trouble import StudyError

HEAD_BYTES = 64 * 1024
SCRATCH = "scratch"
# Written first into the scratch folder: one without it is none of ours.
PLAN = "plan.json"


@dataclass(frozen=True)
class Fingerprint:
    """What a file is known again by: not its content whole, which would be to read it twice."""

    bytes: int
    mtime_ns: int
    # Of its first and last 64 KiB.
    digest: str


@dataclass(frozen=True)
class Found:
    """A file to be read."""

    path: Path
    reader: Reader
    fingerprint: Fingerprint


def files(data: Sequence[Path], store: Path) -> list[Path]:
    """Files, and those in folders, each once, in the order of their names; not what lies in the store itself."""
    found: dict[Path, Path] = {}
    for path in data:
        if not path.exists():
            raise StudyError(f"read {path}: there is no such file or folder", "name a file or a folder of traces")
        if not path.is_dir() and not path.is_file():
            raise StudyError(f"read {path}: it is a pipe or a device", "write what it gives into a file first")
        for file in _walk(path) if path.is_dir() else [path]:
            found.setdefault(file.resolve(), file)
    own = store.resolve()
    return sorted((file for real, file in found.items() if own not in real.parents), key=str)


def _walk(folder: Path) -> list[Path]:
    """Hidden files and folders are not data, nor are stores and the aggregates of reports."""
    found: list[Path] = []

    def refused(error: OSError) -> None:
        raise unreadable(Path(os.fsdecode(error.filename)), error) from error

    for parent, folders, names in os.walk(folder, onerror=refused):
        if parent != str(folder) and _is_own(Path(parent), names, folders):
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(parent) / name for name in names if not name.startswith(".")]
    return [path for path in found if path.is_file()]


def _is_own(folder: Path, names: Sequence[str], folders: Sequence[str]) -> bool:
    """Whether a command made it."""
    is_store = MANIFEST in names or (SCRATCH in folders and (folder / SCRATCH / PLAN).exists())
    return is_store or (folder.suffix == AGGREGATES and INDEX in names)


def fingerprint(path: Path) -> Fingerprint:
    """Reads the file's two ends."""
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        digest = hashlib.sha256(file.read(HEAD_BYTES))
        file.seek(max(0, status.st_size - HEAD_BYTES))
        digest.update(file.read(HEAD_BYTES))
    return Fingerprint(status.st_size, status.st_mtime_ns, digest.hexdigest()[:32])


def choose(path: Path, readers: Sequence[Reader], form: str | None, mapping: ColumnMap) -> Reader | None:
    """The reader of the form, or the first that recognises the file; None if none does.

    A table that nobody knows is read if it has a column that the user's mapping names.
    """
    head = head_of(path, HEAD_BYTES)
    if wide.encoding_of(head) is not None:
        return None
    if form is not None:
        return _named(path, readers, form)
    known = (reader for reader in readers if reader.recognises(path, head))
    mapped = (reader for reader in readers if isinstance(reader, TableReader) and reader.has(head, mapping))
    return next(known, None) or next(mapped, None)


def _named(path: Path, readers: Sequence[Reader], form: str) -> Reader:
    for reader in readers:
        if reader.form == form:
            return reader
    known = ", ".join(sorted(reader.form for reader in readers))
    raise StudyError(f"read {path} as {form}: there is no such form", f"use one of {known}")


def unreadable(path: Path, error: OSError) -> StudyError:
    """What to tell the user of a file that the system does not give."""
    reason = error.strerror or str(error)
    return StudyError(
        f"read {path}: {reason}",
        "make it readable, or leave it out and run the same command again: what was read of others is kept",
    )
