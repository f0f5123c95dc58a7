"""Quantiles of quantities per method: exact of methods of few calls, from histograms of those of many (R6, R7)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import quantiles, quantities, ranks, sketches, trees
from scotfree.study.analysis.columns import Calls
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.sketches import Sketch
from scotfree.study.engine import Engine

Array = np.ndarray[Any, Any]
# What figures ask for: sketched together, since reading costs most.
USUAL = (*quantities.NAMED, *quantities.TREE, *schema.STAGES)
_EIGHT = {column(p): p for p in schema.QUANTILES}
# So many calls' values are in memory at a time, 36 bytes each.
_CALLS_AT_ONCE = 1 << 24
# Of so few calls all is read once, some 200 bytes each, since a query for each quantity would take longer.
_CALLS_HELD_MAX = 1 << 16
# What is read of them.
_HELD = sorted({column for name in USUAL if name not in quantities.TREE for column in quantities.columns(name)})
QUANTILES = pa.schema(
    [
        *schema.METHOD,
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("effective_n", pa.float64(), nullable=False),
        *(pa.field(name, pa.float64(), nullable=False) for name in _EIGHT),
        pa.field("is_exact", pa.bool_(), nullable=False),
    ]
)


class PerMethod:
    """The quantiles of one store's methods."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sketches: dict[str, Sketch] = {}

    @cached_property
    def methods(self) -> pa.Table:
        """`schema.METHOD`, so that a method's number is its row."""
        return self._engine.arrow(self._engine.table("methods").order_by("method_id"))

    @cached_property
    def is_large(self) -> Array:
        """Of each method a byte: whether it has so many calls that its quantiles come from a histogram."""
        return (self._calls > schema.EXACT_SAMPLES_MAX).astype(np.uint8)

    @cached_property
    def _calls(self) -> Array:
        """How many calls each method has."""
        span = self._engine.table("span")
        found = self._engine.arrow(span.group_by("method_id").agg(calls=span.count()))
        calls = np.zeros(self.methods.num_rows, np.int64)
        calls[found["method_id"].to_numpy()] = found["calls"].to_numpy()
        return calls

    @cached_property
    def _few(self) -> list[Any]:
        """The methods of few calls, as tables of the engine of so many as are looked at together."""
        few = np.flatnonzero(self.is_large == 0)
        part = np.cumsum(self._calls[few]) // _CALLS_AT_ONCE
        return [
            self._engine.register(
                f"methods_of_few_calls_{which}", pa.table({"method_id": pa.array(few[part == which], pa.int32())})
            )
            for which in np.unique(part)
        ]

    @cached_property
    def _held(self) -> pa.Table | None:
        """The calls that succeeded, if they are few and this process counts: see `_CALLS_HELD_MAX`."""
        if not self._engine.is_local or self.is_large.any() or self._calls.sum() > _CALLS_HELD_MAX:
            return None
        ok = quantiles.good(self._engine.table("span"))
        return self._engine.arrow(ok.select("method_id", *_HELD, weight=quantiles.weight(ok)))

    @cached_property
    def places(self) -> Any:
        """Places in trees, of the methods of few calls and of what is on a ring."""
        return self._engine.register("places", trees.places(self._engine, self.is_large == 0))

    def sketch(self, names: Sequence[str]) -> None:
        """Fills what sketches of quantities are not there, in one pass over the store."""
        missing = [name for name in names if name not in self._sketches]
        if missing and self.is_large.any():
            asked = dict.fromkeys([*missing, *(USUAL if set(missing) & set(USUAL) else ())])
            fresh = [name for name in asked if name not in self._sketches]
            self._sketches.update(sketches.sketch(self._engine, self.is_large, fresh))

    def table(self, quantity: str) -> pa.Table:
        """Of methods with enough samples (R3), in the order of the median."""
        parts = [QUANTILES.empty_table(), *self._exact(quantity)]
        if self.is_large.any():
            parts.append(self._sketched(quantity))
        rows = pa.concat_tables(parts)
        return rows.filter(pc.greater_equal(rows["samples"], schema.SAMPLES_MIN)).sort_by(
            [("p50", "ascending"), ("method_id", "ascending")]
        )

    def at(self, quantity: str, ps: Mapping[str, Array]) -> dict[str, Array]:
        """Quantiles by name at a p for each method; NaN where there is no sample."""
        found = {name: np.full(self.methods.num_rows, np.nan) for name in ps}

        def elsewhere(values: Any) -> Any:
            limits = {"method_id": self.methods["method_id"], **{name: pa.array(p) for name, p in ps.items()}}
            return quantiles.at(values, self._engine.register("limits", pa.table(limits)), list(ps))

        exact = self._ranked(quantity, ps, elsewhere)
        large = np.flatnonzero(self.is_large)
        self.sketch([quantity])
        for name, p in ps.items():
            for part in exact:
                found[name][part["method_id"].to_numpy()] = part[name].to_numpy()
            if len(large):
                found[name][large] = self._sketches[quantity].quantile(p)[large]
        return found

    def exact(self, quantity: str, p: float) -> Array:
        """One quantile of each method, exact also of those of many calls: by sorting what is in its bin."""
        found = self.at(quantity, {"asked": np.full(self.methods.num_rows, p)})["asked"]
        large = np.flatnonzero(self.is_large)
        if len(large):
            within = self._sketches[quantity].bounds(p, large)
            known = self._engine.register("bins_of_quantile", within)
            values = quantiles.values(self._engine.table("span"), quantity)
            rows = self._engine.arrow(quantiles.within(values, known, p))
            found[rows["method_id"].to_numpy()] = rows["value"].to_numpy()
        return found

    def _values(self, quantity: str) -> Any:
        if quantities.is_of_tree(quantity):
            values = self.places.select("method_id", "weight", value=self.places[quantity])
            return values.filter(values.value.notnull())
        return quantiles.values(self._engine.table("span"), quantity)

    def _ranked(self, quantity: str, ps: Mapping[str, Array], elsewhere: Callable[[Any], Any]) -> list[pa.Table]:
        """Exact quantiles of the methods of few calls: by a sort in this process, or `elsewhere`."""
        if self._held is not None and not quantities.is_of_tree(quantity):
            return [ranks.nearest_rank(_values_of(self._held, quantity), ps)]
        every = self._values(quantity)
        if len(self._few) == 1 and not self.is_large.any():
            parts = [every]
        else:
            parts = [every.semi_join(few, "method_id") for few in self._few]
        if self._engine.is_local:
            return [ranks.nearest_rank(self._engine.arrow(part), ps) for part in parts]
        return [self._engine.arrow(elsewhere(part)) for part in parts]

    def _exact(self, quantity: str) -> list[pa.Table]:
        everywhere = {name: np.full(self.methods.num_rows, p) for name, p in _EIGHT.items()}
        found = self._ranked(
            quantity, everywhere, lambda values: quantiles.weighted(values, ["method_id"], schema.QUANTILES)
        )
        return [self._named(part, np.ones(part.num_rows, np.bool_)) for part in found]

    def _sketched(self, quantity: str) -> pa.Table:
        self.sketch([quantity])
        sketch = self._sketches[quantity]
        samples, weight, squares = (sketch.sums(name) for name in ("samples", "weight", "squares"))
        there = np.flatnonzero(samples)
        columns = {name: sketch.quantile(p)[there] for name, p in _EIGHT.items()}
        effective = weight[there] ** 2 / squares[there]
        sums = {"samples": samples[there], "weight": weight[there], "effective_n": effective}
        return self._named(pa.table({"method_id": there, **sums, **columns}), np.zeros(len(there), np.bool_))

    def _named(self, rows: pa.Table, is_exact: Array) -> pa.Table:
        labels = self.methods.take(rows["method_id"])
        columns = {**{name: labels[name] for name in schema.METHOD.names}, "is_exact": pa.array(is_exact)}
        parts = [columns[name] if name in columns else rows[name] for name in QUANTILES.names]
        return pa.table(parts, names=QUANTILES.names).cast(QUANTILES, safe=False)


def _values_of(calls: pa.Table, quantity: str) -> pa.Table:
    """As `quantiles.values`, of calls in memory."""
    value = quantities.value(quantity)(Calls(calls)).values
    found = pa.table({"method_id": calls["method_id"], "value": value, "weight": calls["weight"]})
    return found.filter(pc.is_valid(found["value"]))
