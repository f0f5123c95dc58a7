"""Calls with a known answer for the plan's tests: an experiment on this machine, and services like it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from small_store import spans

from scotfree.study import schema
from scotfree.study.plan.calls import SINCE_OTHERS, Calls

ANSWER_NS = 30_000
INTERVAL_NS = 1_000_000
Stages = np.ndarray[Any, np.dtype[np.int64]]


def staged(calls: int, *, app_ns: int = 50_000, seed: int = 7, **stages_ns: int) -> Stages:
    """Stages of calls, each within a tenth around 10 us, the application around `app_ns`."""
    means = np.full(9, 10_000)
    means[schema.APP] = app_ns
    for stage, mean in stages_ns.items():
        means[schema.STAGES.index(stage.removesuffix("_ns"))] = mean
    around = np.random.default_rng(seed).uniform(0.9, 1.1, (calls, 9))
    return np.asarray((means * around).astype(np.int64))


def paced(calls: int, interval_ns: int = INTERVAL_NS) -> np.ndarray[Any, Any]:
    """Starts, one behind the other."""
    return np.arange(calls) * interval_ns


def one_method(**columns: Any) -> Calls:
    """The calls of the one method that these rows are of, all of all time."""
    rows = spans(**columns)
    for name in ("not_found_ns", SINCE_OTHERS):
        rows = rows.append_column(name, pa.nulls(len(rows), pa.int64()))
    return Calls(0, "Cart", "Get", 1.0, rows)


def answered(calls: int, answer_ns: int = ANSWER_NS, seed: int = 8) -> dict[str, Any]:
    """Calls that a device answered: three stages, and one time between."""
    stages = staged(calls, seed=seed)
    kept = {
        name: stages[:, schema.STAGES.index(name)]
        for name in ("client_send_queue", "request_stack", "client_recv_queue")
    }
    answer = (np.random.default_rng(seed).uniform(0.9, 1.1, calls) * answer_ns).astype(np.int64)
    return {f"{name}_ns": pa.array(values) for name, values in kept.items()} | {
        "response_wire_ns": answer,
        "total_ns": sum(kept.values()) + answer,
        "start_ns": paced(calls),
    }


def one_behind_the_other(first: pa.Table, second: pa.Table) -> pa.Table:
    """The calls of both, each in a trace of its own."""
    columns = (*schema.STAGE_COLUMNS, "total_ns", "start_ns", "method")
    return spans(**{name: first[name].to_pylist() + second[name].to_pylist() for name in columns})
