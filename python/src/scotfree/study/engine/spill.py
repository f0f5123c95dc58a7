"""Where an engine puts what does not fit into its memory: in the store's folder, each process by itself."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "spill"


def folder(store: Path) -> Path:
    """This process's; what killed processes of this machine left is removed."""
    if not os.access(store, os.W_OK):
        return Path(tempfile.gettempdir()) / f"scot-{_PREFIX}-{os.getpid()}"
    for other in store.glob(f"{_PREFIX}*"):
        if _is_left(other.name):
            shutil.rmtree(other, ignore_errors=True)
    return store / _name(os.getpid())


def _name(process: int) -> str:
    return f"{_PREFIX}-{platform.node()}-{process}"


def _is_left(name: str) -> bool:
    process = name.rpartition("-")[2]
    return process.isdecimal() and name == _name(int(process)) and not _is_alive(int(process))


def _is_alive(process: int) -> bool:
    with suppress(PermissionError):
        try:
            os.kill(process, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return True
