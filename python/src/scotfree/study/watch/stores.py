"""Stores, one after the other: a new one is made beside the one that is read, and takes its place whole.

FOLDER/stores/000004  the one before: who opened it reads on
FOLDER/stores/000005  the newest that is complete
FOLDER/stores/000006.otlp   of what the next one is made beside segments; removed when it is there
FOLDER/store          a link to it, changed by rename
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from scotfree.study.store import MANIFEST

LINK: Final = "store"
STORES: Final = "stores"
# The newest, and the one before.
_KEPT: Final = 2


class Stores:
    """The stores of a folder, of the one process that holds its lock."""

    def __init__(self, folder: Path) -> None:
        """What was under way when another process ended is removed."""
        self.link = folder / LINK
        self._folder = folder / STORES
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.iterdir():
            if path != self.newest():
                remove(path)
        newest = self.newest()
        self._latest = int(newest.name) if newest else 0

    def newest(self) -> Path | None:
        """The newest that is complete."""
        try:
            path = self._folder / self.link.readlink().name
        except OSError:
            return None
        return path if (path / MANIFEST).exists() else None

    def next(self) -> Path:
        """Where the next one is to be made; nothing is there."""
        path = self._folder / f"{self._latest + 1:06}"
        remove(path)
        return path

    def publish(self, path: Path) -> None:
        """From now on it is the newest."""
        half = self.link.with_name(f".{LINK}.half")
        half.unlink(missing_ok=True)
        half.symlink_to(Path(STORES) / path.name)
        half.rename(self.link)
        self._latest = int(path.name)
        for old in sorted(path for path in self._folder.iterdir() if path.is_dir())[:-_KEPT]:
            remove(old)


def remove(path: Path) -> None:
    """A store, or a file; if it is there."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
