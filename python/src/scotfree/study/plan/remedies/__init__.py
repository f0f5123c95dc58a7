"""Each remedy and each piece of advice: a module with `NAME`, `IS_OURS` and `forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from scotfree.study.plan.calls import Calls
from scotfree.study.plan.context import Context
from scotfree.study.plan.price import Effect, Refused
from scotfree.study.plan.remedies import (
    co_locate,
    compress,
    hedge_budget,
    negative_cache,
    persist,
    rebalance,
)


class Remedy(Protocol):
    """A module of this package."""

    NAME: str
    # A remedy of this project; else advice that needs none of its code.
    IS_OURS: bool

    def forecast(self, calls: Calls, context: Context) -> Effect | Refused:
        """What it would make of one method's calls."""


REMEDIES: Final[Sequence[Remedy]] = (persist, co_locate, rebalance, negative_cache, hedge_budget, compress)
