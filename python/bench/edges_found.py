"""How often `scot study compare` finds a planted fault and names it first, and how often it finds one that is not.

PYTHONPATH=src:tests python -m bench.edges_found [--rounds 5 20 100] [--growths 0.3 1 3 10] [--nulls 200]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet_of_edges as fleet_of
from fleet_of_edges import Fault, Fleet
from small_store import study_of

from scotfree.study.edges import read
from scotfree.study.edges.causes import Cause
from scotfree.study.edges.compare import Comparison, compare
from scotfree.study.edges.read import Side
from scotfree.study.edges.scopes import Kind

# What is planted, and of which kinds and names the first of the ranking may be.
Planted = tuple[str, Fault, set[tuple[Kind, tuple[str, ...]]]]


def services(growth: float) -> Iterator[Planted]:
    """Each service slowed on the network: calls into it."""
    for name in fleet_of.SERVICES:
        yield name, fleet_of.into(name, growth), {(Kind.CALLEE, (name,))}


def clients(growth: float) -> Iterator[Planted]:
    """Each service that calls several: calls from it."""
    for name in sorted({above for above, _ in fleet_of.links()}):
        yield name, fleet_of.out_of(name, growth), {(Kind.CALLER, (name,)), *_same_calls(name)}


def _same_calls(caller: str) -> set[tuple[Kind, tuple[str, ...]]]:
    """Services that only this one calls, and that are all that it calls: nothing tells them apart."""
    below = {server for client, server in fleet_of.links() if client == caller}
    (only, *others) = below
    callers = {client for client, server in fleet_of.links() if server == only}
    if others:
        return set()
    return {
        (Kind.CALLEE if callers == {caller} else Kind.LINK, (only,) if callers == {caller} else (caller, only))
    }


def links(growth: float) -> Iterator[Planted]:
    """Each pair of services of which one calls the other."""
    for client, server in fleet_of.links():
        callers = {above for above, below in fleet_of.links() if below == server}
        is_only = len(callers) == 1 and server not in {root for root, _ in fleet_of.ROOTS}
        right = (Kind.CALLEE, (server,)) if is_only else (Kind.LINK, (client, server))
        below_all = {below for above, below in fleet_of.links() if above == client}
        yield (
            f"{client}>{server}",
            fleet_of.link(client, server, growth),
            {
                right,
                *({(Kind.CALLER, (client,))} if below_all == {server} else set()),
            },
        )


def pods(growth: float) -> Iterator[Planted]:
    """One pod of each service."""
    for name in fleet_of.SERVICES:
        yield f"{name}-0", fleet_of.pod(f"{name}-0", growth), {(Kind.SERVER_MACHINE, (f"{name}-0",))}


def handlers(growth: float) -> Iterator[Planted]:
    """Each service's own work."""
    for name in fleet_of.SERVICES:
        yield name, fleet_of.handler(name, growth), {(Kind.CALLEE, (name,))}


FAULTS = {"services": services, "clients": clients, "links": links, "pods": pods, "handlers": handlers}


def side(folder: Path, fleet: Fleet, rounds: int, draw: int, fault: Fault = fleet_of.none) -> Side:
    """One side, through a store."""
    return read.side(study_of(folder, fleet.side(rounds, draw, fault)), None)


def is_named_first(found: Comparison, right: set[tuple[Kind, tuple[str, ...]]]) -> bool:
    """Whether what was planted is what stands first."""
    first: Cause | None = found.causes[0] if found.causes else None
    return first is not None and (first.scope.kind, first.scope.names) in right


def main() -> None:
    """Prints a line of JSON for each kind of fault, number of rounds and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, nargs="+", default=[5, 20, 100])
    parser.add_argument("--growths", type=float, nargs="*", default=[0.3, 1, 3, 10])
    parser.add_argument("--nulls", type=int, default=200)
    parser.add_argument("--unlike", type=float, default=1.0, help="how much the edges' sigmas differ")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--faults", nargs="*", default=list(FAULTS))
    flags = parser.parse_args()
    for rounds in flags.rounds:
        print(json.dumps({"rounds": rounds} | _nulls(rounds, flags.nulls, flags.unlike)), flush=True)
        for kind in flags.faults:
            for growth in flags.growths:
                print(json.dumps(_rate(kind, rounds, growth, flags.seeds)), flush=True)


def _nulls(rounds: int, count: int, unlike: float) -> dict[str, Any]:
    alarms = 0
    for seed in range(1000, 1000 + count):
        with tempfile.TemporaryDirectory() as scratch:
            fleet = Fleet(seed, unlike=unlike)
            found = compare(*(side(Path(scratch) / str(draw), fleet, rounds, draw) for draw in (1, 2)))
            alarms += found.is_worse
    return {"undisturbed": count, "alarms": alarms}


def _rate(kind: str, rounds: int, growth: float, seeds: int) -> dict[str, Any]:
    first, wrong, missed = 0, [], []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(1, seeds + 1):
            fleet = Fleet(seed)
            before = side(Path(scratch) / f"{seed}", fleet, rounds, 1)
            for draw, (name, fault, right) in enumerate(FAULTS[kind](growth), 2):
                found = compare(before, side(Path(scratch) / f"{seed}-{draw}", fleet, rounds, draw, fault))
                first += is_named_first(found, right)
                if not found.causes:
                    missed.append(name)
                elif not is_named_first(found, right):
                    wrong.append((name, found.causes[0].scope.kind.name, found.causes[0].scope.names))
    return {
        "fault": kind,
        "rounds": rounds,
        "growth": growth,
        "planted": first + len(wrong) + len(missed),
        "first": first,
        "wrong": wrong,
        "missed": missed,
    }


if __name__ == "__main__":
    main()
