"""In which stage the study finds a fault that was put into real calls.

Calls without and with the fault lie in a folder as `without-N.jsonl` and `with-N.jsonl`. Of both the P95 tail's
mean call is taken stage by stage (F10c); what the tail grew by is to lie in the stages that the arm names.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.ingest.run import ingest


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The share of the tail's growth that lies in the right stages, and how many calls were looked at."""
    traces = Path(os.environ["SCOT_BENCH_TRACES"])
    calls, before = tail(sorted(traces.glob("without-*.jsonl")))
    faulty_calls, after = tail(sorted(traces.glob("with-*.jsonl")))
    # What became shorter did so by chance, since a fault takes nothing away.
    growth = {stage: max(0.0, after[stage] - before[stage]) for stage in schema.STAGES}
    right = sum(growth[stage] for stage in settings["stages"])
    return {
        "found": right / sum(growth.values()),
        "calls": calls,
        "faulty_calls": faulty_calls,
        **{f"{stage}_grew_us": ns / 1_000 for stage, ns in growth.items()},
    }


def tail(files: list[Path]) -> tuple[int, dict[str, float]]:
    """How many calls there are, and the mean time of each stage in their P95 tail, in ns."""
    with TemporaryDirectory() as folder:
        store = ingest(files, Path(folder) / "calls.store")
        study = Study(store, DuckEngine(store))
        slow = study.tail()
        means = slow.aggregate(**{stage: slow[f"{stage}_ns"].mean() for stage in schema.STAGES})
        row = study.engine.arrow(means).to_pylist()[0]
        return store.manifest.spans, {stage: row[stage] or 0.0 for stage in schema.STAGES}
