"""A fleet of eleven services with a call tree, as rows of `span`: log-normal times, and a fault if asked for.

A round is one call from outside into the first service, and all that follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from small_store import spans

SECOND_NS = 1_000_000_000
MS = 1_000_000
# Of each service and method: what its handler calls, one after the other.
TREE: dict[tuple[str, str], list[tuple[str, str]]] = {
    ("front", "Home"): [("catalog", "List"), ("currency", "Convert"), ("cart", "Get"), ("ads", "Pick")],
    ("front", "Order"): [("checkout", "Place"), ("advice", "For")],
    ("checkout", "Place"): [
        ("cart", "Get"),
        ("catalog", "Get"),
        ("currency", "Convert"),
        ("shipping", "Quote"),
        ("payment", "Charge"),
        ("shipping", "Send"),
        ("mail", "Confirm"),
        ("cart", "Empty"),
    ],
    ("advice", "For"): [("catalog", "List")],
    ("catalog", "List"): [("store", "Scan")],
    ("catalog", "Get"): [("store", "Read")],
    ("cart", "Get"): [("store", "Read")],
}
ROOTS = [("front", "Home"), ("front", "Order")]
SERVICES = sorted({service for service, _ in TREE} | {service for below in TREE.values() for service, _ in below})
PODS = 3


@dataclass(frozen=True)
class Call:
    """What a fault may look at."""

    client: str
    server: str
    method: str
    client_pod: str
    server_pod: str


# ns more outside the handler, ns more in it, and the chance to fail, given the usual ns of both.
Fault = Callable[[Call, float, float], tuple[float, float, float]]


def none(_call: Call, _outside: float, _handler: float) -> tuple[float, float, float]:
    """Nothing is wrong."""
    return 0.0, 0.0, 0.0


@dataclass
class _Rows:
    columns: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **row: Any) -> None:
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)


@dataclass
class Fleet:
    """Makes sides; `seed` is of the fleet itself, so that two sides of one seed have the same usual times."""

    seed: int = 1
    sigma: float = 0.4
    # By how much methods differ in that: factors from 1 / so much to so much.
    unlike: float = 1.0
    # One call in so many takes ten times as long outside or inside.
    outlier: float = 0.02

    def side(self, rounds: int, draw: int, fault: Fault = none, start_ns: int = 0) -> pa.Table:
        """Rounds, one a second."""
        usual, chance, rows = self._usual(), np.random.default_rng((self.seed, draw)), _Rows()
        for at in range(rounds):
            for root in ROOTS:
                trace = int(chance.integers(1, 2**62)).to_bytes(16, "big")
                self._call(
                    rows, chance, usual, fault, (trace, None, start_ns + at * SECOND_NS), ("users", "", *root)
                )
        return spans(**rows.columns)

    def _usual(self) -> dict[tuple[str, str], tuple[float, float, float]]:
        """Of each method the medians outside its handler and in it, and its sigma."""
        chance = np.random.default_rng(self.seed)
        methods = sorted({*TREE, *ROOTS, *(one for below in TREE.values() for one in below)})
        medians = {one: (chance.uniform(0.5, 3) * MS, chance.uniform(0.5, 10) * MS) for one in methods}
        return {one: (*of, self.sigma * self.unlike ** chance.uniform(-1, 1)) for one, of in medians.items()}

    def _call(
        self,
        rows: _Rows,
        chance: np.random.Generator,
        usual: dict[tuple[str, str], tuple[float, float, float]],
        fault: Fault,
        above: tuple[bytes, int | None, int],
        names: tuple[str, str, str, str],
    ) -> tuple[int, bool]:
        """One call and those below it: how long it took, and whether it failed."""
        (trace, parent, start), (client, client_pod, server, method) = above, names
        server_pod, span = f"{server}-{chance.integers(PODS)}", int(chance.integers(1, 2**62))
        *medians, sigma = usual[server, method]
        times = [
            one * chance.lognormal(0, sigma) * (10 if chance.random() < self.outlier else 1) for one in medians
        ]
        more_outside, more_handler, fails = fault(Call(client, server, method, client_pod, server_pod), *medians)
        outside, own = times[0] + more_outside, times[1] + more_handler
        is_failed, at = bool(chance.random() < fails), start + int(outside / 2 + own / 2)
        app = int(own)
        for below in TREE.get((server, method), []):
            took, failed = self._call(rows, chance, usual, fault, (trace, span, at), (server, server_pod, *below))
            app, at, is_failed = app + took, at + took, is_failed or failed
        total = app + int(outside)
        rows.add(
            trace_id=trace,
            span_id=span,
            parent_id=parent,
            start_ns=start,
            service=server,
            method=method,
            client_service=client,
            client_machine=client_pod or None,
            server_machine=server_pod,
            status="INTERNAL" if is_failed else "OK",
            total_ns=total,
            server_app_ns=app,
        )
        return total, is_failed


def into(service: str, growth: float) -> Fault:
    """All calls into a service wait longer outside its handler: by so many times the usual."""
    return lambda call, outside, _: (growth * outside if call.server == service else 0.0, 0.0, 0.0)


def link(client: str, server: str, growth: float) -> Fault:
    """All calls of one service to another wait longer."""
    return lambda call, outside, _: (
        growth * outside if (call.client, call.server) == (client, server) else 0.0,
        0.0,
        0.0,
    )


def out_of(service: str, growth: float) -> Fault:
    """All calls that a service makes wait longer."""
    return lambda call, outside, _: (growth * outside if call.client == service else 0.0, 0.0, 0.0)


def pod(name: str, growth: float) -> Fault:
    """Calls into one pod wait longer."""
    return lambda call, outside, _: (growth * outside if call.server_pod == name else 0.0, 0.0, 0.0)


def handler(service: str, growth: float) -> Fault:
    """A service's own work takes longer."""
    return lambda call, _, own: (0.0, growth * own if call.server == service else 0.0, 0.0)


def failing(service: str, share: float) -> Fault:
    """A service fails by itself."""
    return lambda call, _, __: (0.0, 0.0, share if call.server == service else 0.0)


def links() -> Iterator[tuple[str, str]]:
    """All pairs of services of which one calls the other."""
    yield from sorted({(above, below) for (above, _), all_ in TREE.items() for below, _ in all_})
