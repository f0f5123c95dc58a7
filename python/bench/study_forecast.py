"""What persist was forecast to leave of a shape's P95, against what it left.

SCOT_BENCH_TRACES names a folder with shape/ and a fitted-W/ for each time W that a server works, each with
baseline-N.jsonl and remedy-N.jsonl: calls without and with the remedy, made in turns. The forecast is fitted on
all of fitted-W/ and sees of the shape nothing but its baseline calls; how they were made (the arm's settings) it
is not told. That caller, device and server share one machine is the lab's, so that is said.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest.run import ingest
from scotfree.study.plan.calls import Calls, methods
from scotfree.study.plan.context import Context
from scotfree.study.plan.fit import fit
from scotfree.study.plan.price import PERCENTILES, Effect, Resampled, price
from scotfree.study.plan.remedies import persist

_P = 0.95
# The plain what-if, which knows of no device: what persist takes off the path of a call. The device is midway, and
# the way to it and back is one crossing: request_wire stays for it, response_wire goes with the server's stages.
REMOVED = ("server_recv_queue", "server_app", "server_send_queue", "response_stack", "response_wire")


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """One repetition of one arm."""
    folder = Path(os.environ["SCOT_BENCH_TRACES"])
    with tempfile.TemporaryDirectory() as scratch:
        fitted = fit([_both(part, Path(scratch)) for part in sorted(folder.glob("fitted-*"))])
        baseline, remedy = _both(folder / "shape", Path(scratch))
    # The experiment's server calls stable what it has executed, with its answer.
    context = Context(updates=("*",), fits={"persist": fitted}, is_one_machine=True, stable_every_ns=0.0)
    effect = persist.forecast(baseline, context)
    if not isinstance(effect, Effect):
        raise RuntimeError(f"{arm}: {effect.reason}")
    priced = price(persist.NAME, persist.IS_OURS, baseline, effect)
    forecast = priced.at(_P)
    came = Resampled(remedy.total, remedy.weight, remedy.group)
    measured = came.quantile(_P)
    errors = {p: abs(priced.at(p).forecast_ns / came.quantile(p) - 1) for p in PERCENTILES}
    ratio = priced.at(0.99).forecast_ns / came.quantile(0.99)
    without = _without_stages(baseline)
    return {
        "p50_error": errors[0.50],
        "p99_error": errors[0.99],
        "worst_error": max(errors.values()),
        "p99_factor": max(ratio, 1 / ratio),
        "p99_over_baseline": came.quantile(0.99) / priced.at(0.99).now_ns,
        "p95_error": abs(forecast.forecast_ns / measured - 1),
        "p95_gained": max(0.0, 1 - measured / forecast.now_ns),
        "p95_over_baseline": measured / forecast.now_ns,
        "what_if_error": abs(without / measured - 1),
        "p95_forecast_us": forecast.forecast_ns / 1e3,
        "p95_what_if_us": without / 1e3,
        "p95_measured_us": measured / 1e3,
        "p95_baseline_us": forecast.now_ns / 1e3,
        "baseline_calls": float(len(baseline)),
        "remedy_calls": float(len(remedy)),
        "says_gain": float(forecast.pays),
    }


def _both(part: Path, scratch: Path) -> tuple[Calls, Calls]:
    """Those without and with the remedy."""
    baseline, remedy = (
        _calls(sorted(part.glob(f"{which}-*.jsonl")), scratch / part.name / which)
        for which in ("baseline", "remedy")
    )
    return baseline, remedy


def _calls(files: list[Path], folder: Path) -> Calls:
    store = ingest(files, folder)
    return next(methods(Study(store, DuckEngine(store, memory="500MB", threads=2)), 1))


def _p95(calls: Calls, totals: Any) -> float:
    return Resampled(totals, calls.weight, calls.group).quantile(_P)


def _without_stages(calls: Calls) -> float:
    removed = np.sum([np.nan_to_num(calls.ns(stage)) for stage in REMOVED], axis=0)
    return _p95(calls, calls.total - removed)
