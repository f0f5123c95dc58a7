"""The whole study of a generated fleet: every figure and the page; time of the clock, of processors, and memory.

The store is made once and does not count. The memory is this process' greatest, DuckDB's included.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measured import cpu_seconds, peak_bytes
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.result import Coverage
from scotfree.study.fleet import FleetOptions, generate
from scotfree.study.report.write import write_report
from scotfree.study.store import MANIFEST, Store


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """The arm is a name alone; settings: `spans`, `methods`, `memory` (of DuckDB, as it writes it)."""
    store = _store(settings)
    with tempfile.TemporaryDirectory() as scratch:
        began = time.perf_counter()
        engine = DuckEngine(store, memory=settings.get("memory", "2GB"), threads=2)
        report = Path(scratch) / "report.html"
        computed, cpu_s = cpu_seconds(lambda: write_report(Study(store, engine), report, command=f"bench {arm}"))
        wall_s = time.perf_counter() - began
    complete = sum(each.result.coverage == Coverage.COMPLETE for each in computed)
    return {
        "spans": float(store.manifest.spans),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "rss_gib": peak_bytes() / 2**30,
        "figures": float(len(computed)),
        "figures_complete": float(complete),
    }


def _store(settings: dict[str, Any]) -> Store:
    """In a process of its own, so that making it is not in this one's memory."""
    base = Path(os.environ.get("SCOT_BENCH_FOLDER", tempfile.gettempdir()))
    folder = base / f"scotfree-whole-{settings['spans']}-{settings['methods']}"
    if not (folder / MANIFEST).exists() and _child(folder, settings):
        raise RuntimeError(f"no fleet was made in {folder}")
    return Store.open(folder)


def _child(folder: Path, settings: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        options = FleetOptions(spans=settings["spans"], methods=settings["methods"], partitions=64)
        generate(folder, options)
        os._exit(0)
    return os.waitpid(child, 0)[1]
