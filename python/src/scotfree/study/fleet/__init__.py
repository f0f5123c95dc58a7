"""A synthetic fleet with known truth: services, call trees and the nine stages, metrics and profiles of a day."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from scotfree.study.fleet.making import generate
    from scotfree.study.fleet.options import FleetOptions
    from scotfree.study.fleet.truth import Truth

__all__ = ["FleetOptions", "Truth", "generate"]

# Imported when asked for: flags say what can be chosen, and are not to wait for what makes it.
_WHERE: Final = {"FleetOptions": "options", "Truth": "truth", "generate": "making"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
