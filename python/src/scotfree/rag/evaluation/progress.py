"""What a user sees of work that takes longer than a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

# Seconds that nothing is shown.
_PATIENCE = 1.0


class Shown:
    """Progress on a terminal; nothing elsewhere, nor if it `is_quiet`."""

    def __init__(self, *, is_quiet: bool = False) -> None:
        # Nothing: tqdm finds out whether it is a terminal.
        self._disable = True if is_quiet else None

    @contextmanager
    def bar(self, what: str, total: int, unit: str) -> Iterator[Callable[[int], object]]:
        """Of so many units; what is given takes how many more are done."""
        with tqdm(desc=what, total=total, unit=unit, disable=self._disable, leave=False, delay=_PATIENCE) as bar:
            yield bar.update

    @contextmanager
    def wait(self, what: str) -> Iterator[None]:
        """Of work that cannot say how far it is."""
        with tqdm(desc=what, bar_format="{desc} …", disable=self._disable, leave=False):
            yield
