"""How many calls a second of processor time gives their eight exact quantiles per method, from Parquet."""

from __future__ import annotations

from typing import Any

from bench import data, ours, sql
from bench.measured import cpu_seconds
from scotfree.study.engine.duck import DuckEngine


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """Arms: `study`, `sql`."""
    store = data.store(settings["calls"], settings["methods"])
    if arm == "study":
        engine = DuckEngine(store, threads=2)
        found, seconds = cpu_seconds(lambda: ours.quantiles(engine))
    else:
        connection = sql.connect(store)
        found, seconds = cpu_seconds(lambda: sql.quantiles(connection))
    return {"mspans_per_cpu_s": store.manifest.spans / seconds / 1e6, "methods": found.num_rows}
