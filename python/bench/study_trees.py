"""How many calls a second of processor time are given their place in their trace, reading included."""

from __future__ import annotations

from typing import Any

from bench import data, ours, sql
from bench.measured import cpu_seconds
from scotfree.study.engine.duck import DuckEngine


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """Arms: `kernel`, `kernel-checked`, `sql` (recursive, for few calls: it needs memory)."""
    store = data.store(settings["calls"], settings["methods"])
    if arm.startswith("kernel"):
        engine = DuckEngine(store, threads=2)
        found, seconds = cpu_seconds(lambda: ours.trees(engine))
    else:
        connection = sql.connect(store)
        found, seconds = cpu_seconds(lambda: sql.trees(connection))
    if settings.get("check", False):
        assert found.equals(sql.trees(sql.connect(store)).cast(found.schema)), "SQL counts otherwise"
    return {"mspans_per_cpu_s": store.manifest.spans / seconds / 1e6, "methods": found.num_rows}
