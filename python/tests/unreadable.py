"""Folders that cannot be read, also for who may read everything."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest


def refuse(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Folders of that name are not to be read."""
    scan = os.scandir

    def refused(at: Path) -> object:
        if at.name == name:
            raise PermissionError(errno.EACCES, "Permission denied")
        return scan(at)

    monkeypatch.setattr(os, "scandir", refused)
