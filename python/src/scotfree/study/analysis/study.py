"""The study of one store: the aggregates that figures share, each computed once."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import counts, quantiles, quantities, removal, what_if
from scotfree.study.analysis.cycles import rules, tax
from scotfree.study.analysis.per_method import PerMethod
from scotfree.study.engine import Engine
from scotfree.study.store import Store

Removed = Collection[str]


class Study:
    """A store behind an engine. Results are kept, so that figures ask as if each were alone."""

    def __init__(self, store: Store, engine: Engine, *, rule_files: tuple[Path, ...] = ()) -> None:
        self.store = store
        self.engine = engine
        self.span: Any = engine.table("span")
        self.metric: Any = engine.table("metric")
        self.profile: Any = engine.table("profile")
        # Of the cycle tax; wrong ones are told before anything is computed.
        self._rules = rules.load(rule_files)
        # On the instance: two studies share nothing.
        self.cycle_tax = cache(self._cycle_tax)
        self.counts = cache(self._counts)
        self.quantiles = cache(self._quantiles)
        self.bounds = cache(self._bounds)
        self._per_method = PerMethod(engine)
        self._what_if_of = cache(self._count_what_if)
        self._removed_of = cache(self._count_removed)

    def _counts(self) -> pa.Table:
        """Per method how many calls, how long in all, how much of it is known; see `counts.per_method`."""
        return counts.per_method(self.engine)

    def _quantiles(self, quantity: str) -> pa.Table:
        """Per method with enough samples (R3) the quantiles of a quantity, in the order of the median.

        A quantity is one of `quantities.NAMED` or `quantities.TREE`, a stage, or stages joined by `+`. Of calls
        that succeeded (R1), but for places in trees: those are of all calls.
        Columns: method_id, service, method, samples, weight, effective_n (R7), p01 … p99, is_exact.
        """
        return self._per_method.table(quantity)

    def _bounds(self, p: float = 0.95) -> pa.Table:
        """Where each method's tail begins: method_id, bound_ns. Exact whatever the number of calls (R3)."""
        totals = self.quantiles("total")["method_id"]
        bound = self._per_method.exact("total", p)[totals.to_numpy()]
        return pa.table({"method_id": totals, "bound_ns": bound})

    def cyclic_calls(self) -> int:
        """How many calls are on a ring of parents, or below one: they have no place in a tree."""
        places = self._per_method.places
        count = places.is_cyclic.sum().fill_null(0).name("calls").as_table()
        return int(self.engine.arrow(count)["calls"][0].as_py())

    def tail(self, p: float = 0.95) -> Any:
        """An Ibis table: the calls with a total of at least the P95 of their own method (F10c, F10d).

        The columns of `span`, and `bound_ns`: that P95. Methods with enough samples only (R3).
        """
        known = self.engine.register(f"bounds_{quantiles.column(p)}", self.bounds(p))
        joined = quantiles.good(self.span).inner_join(known, "method_id")
        return joined.filter(joined.total_ns >= joined.bound_ns)

    def what_if(self, sets: Sequence[Removed] | None = None) -> pa.Table:
        """Which share of the tail leaves it if stages took what they take in the median (F15).

        Without `sets`: each stage by itself. A row for each method and set, and one of all methods together with
        `method_id` null. Columns: method_id, service, method, removed (as `quantities.named`), samples, tail
        (weight of calls above the method's P95 with the stages known), leaves (share of it, 0 to 1), leaves_low,
        leaves_high (95 % interval).
        """
        return self._what_if_of(_names(sets))

    def removed(self, sets: Sequence[Removed]) -> pa.Table:
        """The percentiles after stages are brought to their median: of total - Σ stages + median(Σ stages).

        A row for each set and method with enough samples. Columns: method_id, service, method, removed, samples;
        then for 50, 95 and 99: before_p50 (of the same calls), p50, p50_low, p50_high (95 % interval); in ns.
        """
        return self._removed_of(_names(sets))

    def _count_what_if(self, names: tuple[str, ...]) -> pa.Table:
        self._per_method.sketch(names)
        medians = {name: self.quantiles(name) for name in names}
        return what_if.shares(self.engine, self._per_method.methods, self.bounds(), medians)

    def _count_removed(self, names: tuple[str, ...]) -> pa.Table:
        return removal.percentiles(self.engine, self._per_method, names)

    def _cycle_tax(self) -> tax.CycleTax | None:
        """Shares of processor time per category; None without profiles."""
        return tax.cycle_tax(self.engine, self._rules)


def _names(sets: Sequence[Removed] | None) -> tuple[str, ...]:
    return tuple(quantities.named(each) for each in (sets if sets is not None else [[s] for s in schema.STAGES]))
