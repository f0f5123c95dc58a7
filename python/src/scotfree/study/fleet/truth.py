"""What is known of a fleet by construction, and by plain numpy from the columns that it was drawn with.

Nothing here reads the store: calls are drawn again from the seed. So a store, an engine or an analysis that loses
or changes a value differs from this.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.fleet import exact, metrics, profiles
from scotfree.study.fleet.draws import Array
from scotfree.study.fleet.population import RESERVED, SHOWCASE, STATUSES
from scotfree.study.fleet.write import Fleet
from scotfree.study.store import write_table

# What `values` knows, as the study's quantities are called.
QUANTITIES = (
    "total",
    "network",
    "queue",
    "tax_ratio",
    "req_bytes",
    "resp_bytes",
    "size_ratio",
    "cpu_cycles",
    "descendants",
    "ancestors",
)
_OF_TREES = ("descendants", "ancestors")


class Truth:
    """Of one fleet. What needs all calls draws them once, when asked: some 400 bytes of memory each."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @property
    def methods(self) -> list[tuple[str, str]]:
        """Service and name, by `method_id`."""
        return self.fleet.population.methods

    @cached_property
    def columns(self) -> dict[str, Array]:
        """All calls, cell by cell: columns of `schema.SPAN` (codes where it has dictionaries), `level`,
        `descendants`, `trace` (its number)."""
        parts = [{**drawn.columns, "trace": drawn.numbers[drawn.columns["trace"]]} for drawn in self.fleet.drawn()]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    @property
    def is_good(self) -> Array:
        """Whether each call succeeded."""
        found: Array = self.columns["status"] == 0
        return found

    def values(self, quantity: str) -> Array:
        """Of each call, NaN where it is not known."""
        columns = self.columns
        if quantity == "cpu_cycles":
            return np.where(columns["no_cycles"], np.nan, columns[quantity])
        known: dict[str, Callable[[], Array]] = {
            "total": lambda: columns["total_ns"],
            "network": lambda: self.sum_of([*schema.WIRES, *schema.STACKS]),
            "queue": lambda: self.sum_of(schema.QUEUES),
            "tax_ratio": lambda: (columns["total_ns"] - columns["server_app_ns"]) / columns["total_ns"],
            "req_bytes": lambda: columns["req_bytes"],
            "resp_bytes": lambda: columns["resp_bytes"],
            "size_ratio": lambda: columns["resp_bytes"] / columns["req_bytes"],
            "descendants": lambda: columns["descendants"],
            "ancestors": lambda: columns["level"],
        }
        return known[quantity]().astype(np.float64)

    def sum_of(self, stages: list[str] | tuple[str, ...]) -> Array:
        """Stages of each call, summed."""
        found: Array = np.sum([self.columns[f"{stage}_ns"] for stage in stages], axis=0)
        return found

    def quantiles(self, quantity: str) -> dict[int, dict[str, float]]:
        """Per `method_id`; failed calls count in trees only (R1)."""
        values = self.values(quantity)
        counts = ~np.isnan(values) & (self.is_good | (quantity in _OF_TREES))
        columns = self.columns
        return exact.quantiles(columns["method_id"][counts], values[counts], columns["sample_weight"][counts])

    def calls(self) -> Array:
        """Calls that each method's samples stand for."""
        return np.bincount(self.columns["method_id"], self.columns["sample_weight"], len(self.methods))

    def time_ns(self) -> Array:
        """Time of each method's successful calls."""
        good, columns = self.is_good, self.columns
        weighed = columns["total_ns"][good] * columns["sample_weight"][good]
        return np.bincount(columns["method_id"][good], weighed, len(self.methods))

    def what_if(self, stages: list[str]) -> dict[int, tuple[float, float]]:
        """Per `method_id`: weight of the P95 tail, and of what leaves it if these stages took their median."""
        good, columns = self.is_good, self.columns
        picked = [columns["method_id"], columns["total_ns"], self.sum_of(stages), columns["sample_weight"]]
        method, total, part, weight = (values[good] for values in picked)
        return exact.what_if(method, total, part, weight)

    def error_shares(self) -> dict[str, tuple[float, float]]:
        """Of failed calls by status: share of their number, share of their cycles."""
        columns, weight = self.columns, self.columns["sample_weight"]
        cycles = np.nan_to_num(self.values("cpu_cycles")) * weight
        sums = [np.bincount(columns["status"], of, 1 + len(STATUSES))[1:] for of in (weight, cycles)]
        shares = [of / of.sum() for of in sums]
        return {name: (float(shares[0][i]), float(shares[1][i])) for i, name in enumerate(STATUSES)}

    def tax(self) -> dict[str, float]:
        """Shares of the time of successful calls: tax, wire, stack, queue (F10; ratios of sums)."""
        good, columns = self.is_good, self.columns
        weight = columns["sample_weight"][good]
        total = float((columns["total_ns"][good] * weight).sum())
        parts = {"wire": schema.WIRES, "stack": schema.STACKS, "queue": schema.QUEUES}
        found = {name: float((self.sum_of(stages)[good] * weight).sum()) / total for name, stages in parts.items()}
        return {"tax": sum(found.values()), **found}

    def cluster_order(self, service: str) -> list[str]:
        """Clusters from the least to the most loaded over the day: by construction the slower, the later."""
        who = self.fleet.population
        load = who.queue_factor[who.services.index(service)].mean(axis=1)
        return [who.clusters[index] for index in np.argsort(load)]

    def parameters(self) -> dict[str, Any]:
        """What holds by construction, in few words."""
        return {
            "options": asdict(self.fleet.options),
            "dominant_stage": {service: stage for service, (stage, _, _) in SHOWCASE.items()},
            # The variables of Table 2 that the service's dominant stage rises with; with the others it does not.
            "rises_with": {service: _rises_with(service, stage) for service, (stage, _, _) in SHOWCASE.items()},
            "requests_per_cycle_growth": metrics.GROWTH,
            "saturated_services": list(metrics.SATURATED),
            "cycle_shares": dict(profiles.SHARES),
            "error_share": self.fleet.options.error_share,
        }

    def cycle_shares(self) -> dict[str, float]:
        """Each service's share of all cycles in profiles (F8c)."""
        who = self.fleet.population
        return dict(zip(who.services, profiles.cycle_shares(who).tolist(), strict=True))

    def write(self, folder: Path) -> None:
        """Writes it as Parquet and JSON: parameters.json, methods.parquet, quantiles.parquet, what_if.parquet."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "parameters.json").write_text(json.dumps(self.parameters(), indent=1))
        write_table(self._method_table(), folder / "methods.parquet")
        write_table(self._quantile_table(), folder / "quantiles.parquet")
        write_table(self._what_if_table(), folder / "what_if.parquet")

    def _method_table(self) -> pa.Table:
        who = self.fleet.population
        drawn = {f"{stage}_mu": who.stage_mu[:, index] for index, stage in enumerate(schema.STAGES)}
        spread = {f"{stage}_sigma": who.stage_sigma[:, index] for index, stage in enumerate(schema.STAGES)}
        counted = {"calls": self.calls(), "time_ns": self.time_ns()}
        table = who.method_table()
        for name, values in {**counted, **drawn, **spread}.items():
            table = table.append_column(name, pa.array(values))
        return table

    def _quantile_table(self) -> pa.Table:
        rows = [
            {"quantity": quantity, "method_id": method, **found}
            for quantity in QUANTITIES
            for method, found in self.quantiles(quantity).items()
        ]
        return pa.Table.from_pylist(rows)

    def _what_if_table(self) -> pa.Table:
        rows = [
            {"removed": stage, "method_id": method, "tail": tail, "leaves": leaves}
            for stage in schema.STAGES
            for method, (tail, leaves) in self.what_if([stage]).items()
        ]
        return pa.Table.from_pylist(rows)


def _rises_with(service: str, stage: str) -> list[str]:
    """Queues rise with load; what computes with cycles per instruction too, and on reserved processors only so."""
    load = [] if service in RESERVED or stage in schema.WIRES else ["cpu_util", "mem_bw", "long_wakeup_rate"]
    return load if stage in (*schema.QUEUES, *schema.WIRES) else [*load, "cpi"]
