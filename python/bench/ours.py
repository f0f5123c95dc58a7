"""The study's questions by its own engine and kernels, in the form in which peers answer them."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import quantiles as quantities
from scotfree.study.analysis import ranks
from scotfree.study.analysis import trees as kernel
from scotfree.study.analysis import what_if as tails
from scotfree.study.engine import column
from scotfree.study.engine.duck import DuckEngine

PLACES = pa.schema([("method_id", pa.int32()), ("below", pa.int64()), ("above", pa.int64())])


def quantiles(engine: DuckEngine, quantity: str = "total") -> pa.Table:
    """method_id and the eight exact quantiles, of methods with enough samples."""
    values = engine.arrow(quantities.values(engine.table("span"), quantity))
    methods = int(values["method_id"].to_numpy().max()) + 1
    found = ranks.nearest_rank(values, {column(p): np.full(methods, p) for p in schema.QUANTILES})
    return found.filter(pc.greater_equal(found["samples"], schema.SAMPLES_MIN)).sort_by("method_id")


def what_if(engine: DuckEngine, methods: pa.Table, limits: pa.Table) -> pa.Table:
    """As `Study.what_if` of each stage, with intervals; `limits` as by `sql.bounds`."""
    known = limits.select(["method_id", "bound"]).rename_columns(["method_id", "bound_ns"])
    medians = {
        stage: limits.select(["method_id", f"m_{stage}_ns"]).rename_columns(["method_id", "p50"])
        for stage in schema.STAGES
    }
    return tails.shares(engine, methods, known, medians)


def trees(engine: DuckEngine) -> pa.Table:
    """method_id, below (sum of descendants), above (most ancestors)."""
    parts = engine.iter_partitions(kernel.COLUMNS, _places, PLACES)
    return reduce(_added, parts, PLACES.empty_table()).sort_by("method_id")


def _places(calls: pa.Table) -> pa.Table:
    found = kernel.partition(calls)
    return _by_method(found.select(["method_id", "descendants", "ancestors"]).rename_columns(PLACES.names))


def _added(left: pa.Table, right: pa.Table) -> pa.Table:
    return _by_method(pa.concat_tables([left, right]))


def _by_method(rows: pa.Table) -> pa.Table:
    found = rows.group_by("method_id").aggregate([("below", "sum"), ("above", "max")])
    return found.select(["method_id", "below_sum", "above_max"]).rename_columns(PLACES.names).cast(PLACES)


def same_shares(shares: pa.Table, counts: pa.Table) -> bool:
    """Whether `what_if` says what `sql.what_if` counted."""
    of_methods = shares.filter(pc.is_valid(shares["method_id"]))
    for stage in schema.STAGES:
        mine = of_methods.filter(pc.equal(of_methods["removed"], stage)).sort_by("method_id")
        if mine["method_id"].to_pylist() != counts["method_id"].to_pylist():
            return False
        leaves = counts[f"{stage}_ns"].to_numpy() / counts["tail"].to_numpy()
        if not np.allclose(mine["leaves"].to_numpy(), leaves, rtol=1e-12, atol=0):
            return False
    return True
