"""Shares of processor time per category, per service and in all (study-spec 5.3, F20)."""

from __future__ import annotations

from dataclasses import dataclass

import ibis
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis.cycles.classify import classify
from scotfree.study.analysis.cycles.rules import UNCLASSIFIED, Rules
from scotfree.study.engine import Engine

# Symbols named of what no rule classifies (study-spec 5.3).
TOP_UNCLASSIFIED = 20
UNKNOWN_SERVICE = "unknown"


@dataclass(frozen=True)
class CycleTax:
    """Where processor time goes. Idle time is in none of it."""

    rules: Rules
    # One of schema.PROFILE_UNITS: what the weights count.
    unit: str
    # Units found beside it and left out, since they do not add up.
    other_units: list[str]
    # service, category, weight, share (of the service's weight).
    services: pa.Table
    # category, weight, share.
    fleet: pa.Table
    # rule, category, weight, at_leaf (weight of stacks whose leaf itself had the rule), share.
    rules_used: pa.Table
    # symbol and module of the leaf, weight, share (of everything): the heaviest of what has no category.
    unclassified: pa.Table

    def share(self, category: str) -> float:
        """The fleet's share of a category, 0 to 1."""
        found = self.fleet.filter(pc.equal(self.fleet["category"], category))
        return float(found["share"][0].as_py()) if found.num_rows else 0.0


def cycle_tax(engine: Engine, rules: Rules) -> CycleTax | None:
    """Classifies every distinct stack once; None where there is no profile of processor time."""
    units = _units(engine)
    if not units:
        return None
    stacks = _classified(_stacks(engine, units[0]), rules)
    spent = stacks.filter(pc.not_equal(stacks["category"], "idle"))
    services = _sums(spent, ["service", "category"])
    whole = services.group_by("service").aggregate([("weight", "sum")])
    services = _with_share(
        services, pc.take(whole["weight_sum"], pc.index_in(services["service"], whole["service"]))
    )
    total = pc.sum(spent["weight"])
    used = spent.filter(pc.is_valid(spent["rule"]))
    leaves = spent.filter(pc.equal(spent["category"], UNCLASSIFIED))
    return CycleTax(
        rules,
        units[0],
        units[1:],
        services,
        _with_share(_sums(spent, ["category"]), total),
        _with_share(_sums(used, ["rule", "category"], ["weight", "at_leaf"]), total),
        _with_share(_sums(leaves, ["symbol", "module"]).slice(0, TOP_UNCLASSIFIED), total),
    )


def _units(engine: Engine) -> list[str]:
    """The units of processor time in the store, that of most services first."""
    profile = engine.table("profile")
    profile = profile.filter(profile.unit.isin(schema.PROFILE_UNITS), profile.weight > 0)
    counted = profile.group_by("unit").agg(services=profile.service.nunique())
    return list(engine.arrow(counted.order_by([ibis.desc("services"), "unit"]))["unit"].to_pylist())


def _stacks(engine: Engine, unit: str) -> pa.Table:
    """service, stack, modules, weight: each distinct stack of a service once."""
    profile = engine.table("profile")
    profile = profile.filter(profile.unit == unit, profile.weight > 0)
    keyed = profile.mutate(service=profile.service.fill_null(UNKNOWN_SERVICE))
    return engine.arrow(keyed.group_by(["service", "stack", "modules"]).agg(weight=keyed.weight.sum()))


def _classified(stacks: pa.Table, rules: Rules) -> pa.Table:
    """service, category, rule, weight, at_leaf, symbol and module (of the leaf)."""
    frames, modules = stacks["stack"].combine_chunks(), stacks["modules"].combine_chunks()
    found = classify(frames, modules, rules)
    at_leaf = pc.if_else(pc.fill_null(pc.equal(found.callers, 0), False), stacks["weight"], 0.0)
    return pa.table(
        {
            "service": stacks["service"],
            "category": found.category,
            "rule": found.rule,
            "weight": stacks["weight"],
            "at_leaf": at_leaf,
            "symbol": _leaves(frames),
            "module": _leaves(modules),
        }
    )


def _leaves(lists: pa.Array) -> pa.Array:
    """The last text of each list; "" where there is none."""
    offsets = pc.subtract(lists.offsets, lists.offsets[0])
    is_empty = pc.equal(pc.fill_null(pc.list_value_length(lists), 0), 0)
    last = pc.if_else(is_empty, pa.scalar(None, pa.int32()), pc.subtract(offsets[1:], 1))
    return pc.fill_null(lists.flatten().cast(pa.string()).take(last), "")


def _sums(rows: pa.Table, by: list[str], columns: list[str] | None = None) -> pa.Table:
    """Weights added up by group, the heaviest first; equal ones in the order of their names."""
    names = columns or ["weight"]
    summed = rows.group_by(by).aggregate([(name, "sum") for name in names])
    summed = summed.rename_columns([*by, *names])
    return summed.sort_by([("weight", "descending"), *((name, "ascending") for name in by)])


def _with_share(rows: pa.Table, whole: pa.Scalar | pa.ChunkedArray) -> pa.Table:
    return rows.append_column("share", pc.divide(rows["weight"], whole).cast(pa.float64()))
