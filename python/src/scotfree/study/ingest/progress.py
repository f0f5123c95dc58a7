"""How far it is, on stderr: at once on a terminal, elsewhere only for what takes longer than 2 s."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def bar(label: str, total: int, unit: str, *, quiet: bool) -> Any:
    """A bar that is closed by its `with`."""
    terminal = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=label,
        unit=unit,
        unit_scale=True,
        disable=quiet,
        delay=0 if terminal else 2,
        # A log wants a line now and then, not ten a second.
        mininterval=0.1 if terminal else 10,
        leave=terminal,
        file=sys.stderr,
    )
