"""The study of one store: the aggregates that figures share, each computed once."""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa

from scotfree.study.analysis import quantiles
from scotfree.study.engine import Engine
from scotfree.study.store import Store


class Study:
    """A store behind an engine. Results are kept, so that figures ask as if each were alone."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self.store = store
        self.engine = engine
        self.span: Any = engine.table("span")
        self.metric: Any = engine.table("metric")
        self.profile: Any = engine.table("profile")
        # On the instance: two studies share nothing.
        self.quantiles = cache(self._quantiles)

    def _quantiles(self, quantity: str) -> pa.Table:
        """Per method with enough samples (R1, R3, R7) the quantiles of a quantity of `quantiles.QUANTITIES`.

        Columns: method_id, service, method, samples, weight, p01 … p99.
        """
        return quantiles.per_method(self.engine, quantity)
