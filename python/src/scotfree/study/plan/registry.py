"""The remedies that `scot` has, as `scot remedies --json` prints them: registry.json, kept equal by a test."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType


@dataclass(frozen=True)
class Entry:
    """What a remedy says of itself."""

    name: str
    about: str
    # Names of stages.
    removes: Sequence[str]
    preconditions: Sequence[str]
    # Folders of the repository that an answer's time depends on.
    covers: Sequence[str]


@cache
def entries() -> Mapping[str, Entry]:
    """All remedies by name."""
    text = resources.files(__package__).joinpath("registry.json").read_text()
    return MappingProxyType({one["name"]: Entry(**one) for one in json.loads(text)})
