"""The fleet's profiles: stacks whose share of each category is known by construction (F8c, F20)."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.fleet.calls import DAY_START_NS
from scotfree.study.fleet.draws import Array
from scotfree.study.fleet.metrics import service_shares
from scotfree.study.fleet.population import Population

# Category -> its share of cycles (figure 20; what is not in the paper's tax is made up).
SHARES: Final = {
    "compression": 0.031,
    "networking": 0.017,
    "serialization": 0.012,
    "rpc_library": 0.011,
    "encryption": 0.009,
    "application": 0.915,
    "unclassified": 0.005,
}
# Category -> a stack from root to leaf. The leaf's category counts, whoever called it.
_STACKS: Final = {
    "compression": ("start_thread", "grpc::Server::Run", "deflate_slow"),
    "networking": ("start_thread", "grpc::Server::Run", "tcp_sendmsg"),
    "serialization": ("start_thread", "grpc::Server::Run", "google::protobuf::MessageLite::SerializeToString"),
    "rpc_library": ("start_thread", "grpc::Server::Run", "grpc_core::CallCombiner::Start"),
    "encryption": ("start_thread", "grpc::Server::Run", "AES_encrypt"),
    "application": ("start_thread", "Fleet::Handle", "Fleet::Work"),
    "unclassified": ("qqz_unknown_symbol",),
}
# The module of a service's own frames, and of the kernel's.
_PROGRAM: Final = "/usr/bin/{service}"
_KERNEL: Final = "[kernel.kallsyms]"
_LIBRARY: Final = "/opt/fleet/libfleet.so"
# Service -> its share of cycles: the three that the text gives (section 2.6), and others as made up.
_OF_SERVICES: Final = {
    "network-disk": 0.018,
    "f1": 0.018,
    "ml-inference": 0.0089,
    "spanner": 0.03,
    "kv-store": 0.02,
    "bigtable": 0.03,
    "ssd-cache": 0.02,
    "video-metadata": 0.01,
}


def cycle_shares(who: Population) -> Array:
    """Each service's share of cycles: what the showcase leaves the others have by their calls."""
    named = np.array([_OF_SERVICES.get(service, 0.0) for service in who.services])
    calls = np.where(named > 0, 0.0, service_shares(who))
    found: Array = named + calls / calls.sum() * (1 - named.sum())
    return found


def table(who: Population) -> pa.Table:
    """`schema.PROFILE`: a stack of each category for each service."""
    kinds = list(SHARES)
    rows = [(service, kind) for service in who.services for kind in kinds]
    weight = np.outer(cycle_shares(who), list(SHARES.values())).ravel() * 1e15
    return pa.Table.from_pydict(
        {
            "service": [service for service, _ in rows],
            "machine": [None] * len(rows),
            "ts_ns": [DAY_START_NS] * len(rows),
            "stack": [_STACKS[kind] for _, kind in rows],
            "modules": [_modules(service, kind) for service, kind in rows],
            "weight": weight,
            "unit": ["cpu_cycles"] * len(rows),
        },
        schema=schema.PROFILE,
    )


def _modules(service: str, kind: str) -> list[str]:
    """Of an application all frames stand in the service's own program; the network's leaf is in the kernel."""
    if kind == "application":
        return [_PROGRAM.format(service=service)] * len(_STACKS[kind])
    leaf = _KERNEL if kind == "networking" else _LIBRARY
    return [*[_LIBRARY] * (len(_STACKS[kind]) - 1), leaf]
