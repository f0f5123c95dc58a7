"""Each remedy and each piece of advice: a module with `NAME`, `IS_OURS` and `forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, Protocol, cast

from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused


class Remedy(Protocol):
    """A module of this package."""

    NAME: str
    # A remedy of this project; else advice that needs none of its code.
    IS_OURS: bool

    def forecast(self, calls: Calls, context: Context) -> Effect | Refused:
        """What it would make of one method's calls."""


def _found() -> list[Remedy]:
    """What lies in this folder, our own remedies first."""
    names = sorted(module.name for module in iter_modules(__path__))
    modules = [cast(Remedy, import_module(f"{__name__}.{name}")) for name in names]
    return sorted(modules, key=lambda module: not module.IS_OURS)


REMEDIES: Final[Sequence[Remedy]] = tuple(_found())
