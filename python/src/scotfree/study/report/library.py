"""The chart library as one script: Vega, Vega-Lite and their embedding, as vl-convert bundles them.

To bundle them takes more than a second each time and always gives the same, so the script is kept in the user's
cache folder, under a name of all that it depends on, behind its digest.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from scotfree.cache_folder import cache_folder, write_whole

# Vega-Lite's version of altair 6.3's schema.
_VEGA_LITE: Final = "6.4"
_ENTRY: Final = "window.vegaEmbed = vegaEmbed;"


@cache
def script() -> str:
    """What the page's own script draws with; it cannot end its own element."""
    path = _kept_at()
    found = _kept(path) if path else None
    if found is None:
        found = bundled()
        if path:
            text = found.encode()
            write_whole(path, hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    if "</script" in found or "<!--" in found:
        raise AssertionError("the chart library would end its own script element")
    return found


def _kept_at() -> Path | None:
    folder = cache_folder("charts")
    parts = (metadata.version("vl-convert-python"), _VEGA_LITE, _ENTRY)
    return folder and folder / f"{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.js"


def _kept(path: Path) -> str | None:
    """What is kept there, if it is there and whole."""
    with suppress(OSError, UnicodeDecodeError):
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest == hashlib.sha256(text).hexdigest().encode():
            return text.decode()
    return None


def bundled() -> str:
    """Made anew."""
    # 80 MB to load, for who has it kept not to.
    import vl_convert  # noqa: PLC0415

    return str(vl_convert.javascript_bundle(_ENTRY, vl_version=_VEGA_LITE)).replace("\r\n", "\n")
