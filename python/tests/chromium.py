"""A headless Chromium, for tests of pages; without one they are skipped with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

_playwright = pytest.importorskip("playwright.sync_api")
_PROGRAM: Final = shutil.which("chromium")
# What a module of such tests is marked with.
TESTS: Final = [
    pytest.mark.browser,
    pytest.mark.skipif(_PROGRAM is None, reason="no chromium (Debian: apt-get install chromium)"),
]
_ARGUMENTS: Final = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, running."""
    with _playwright.sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=_PROGRAM, args=_ARGUMENTS)
        yield launched
        launched.close()
