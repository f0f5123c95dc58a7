"""Keeps pandas out of a process that has no use for it.

Where it is installed, Arrow imports it to look whether a list that is to become a column is one of pandas', and so
does Ibis: half a second of every start, or more.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

_NAME: Final = "pandas"


class _Without:
    """Finds that it is not installed."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Nothing of any other module: the next finder is asked."""
        if name == _NAME:
            raise ModuleNotFoundError(f"{_NAME} is not used here", name=_NAME)


def without_pandas(words: Sequence[str]) -> None:
    """For the whole process, a program's own; not if its words name Spark, whose client needs it."""
    if not any(word.endswith("spark") for word in words):
        sys.meta_path.insert(0, _Without())
