"""Who is in a fleet: services, methods with their distributions, clusters on a globe, machines with their clocks.

Eight services are the paper's (Table 1), each dominated by another stage. All times in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.fleet.draws import Array, lookup, stream, zipf_weights
from scotfree.study.fleet.options import FleetOptions

# Service -> the stage that dominates it, its most popular method, bytes of a request (Table 1).
SHOWCASE: Final[dict[str, tuple[str, str, int]]] = {
    "network-disk": ("server_app", "Write", 32_000),
    "ssd-cache": ("server_recv_queue", "Lookup", 400),
    "kv-store": ("response_stack", "Get", 128),
    "bigtable": ("request_stack", "ReadRow", 1_000),
    "f1": ("client_recv_queue", "Process", 75),
    "spanner": ("server_send_queue", "Read", 800),
    "video-metadata": ("client_send_queue", "GetMetadata", 32_000),
    "ml-inference": ("response_wire", "Infer", 512),
}
# Share of failed calls, and cycles of one against those of a call that succeeds (section 4.4: 45 % of errors have
# 55 % of the cycles, 20 % have 21 %; how the rest divides the text does not say).
STATUSES: Final[dict[str, tuple[float, float]]] = {
    "CANCELLED": (0.45, 1.222),
    "NOT_FOUND": (0.20, 1.05),
    "UNAVAILABLE": (0.10, 0.686),
    "RESOURCE_EXHAUSTED": (0.08, 0.686),
    "PERMISSION_DENIED": (0.06, 0.686),
    "DEADLINE_EXCEEDED": (0.05, 0.686),
    "ABORTED": (0.03, 0.686),
    "INTERNAL": (0.03, 0.686),
}
# On reserved processors: they feel cycles per instruction, not the load of their clusters (F17).
RESERVED: Final = ("kv-store",)
BINS: Final = 48
BYTES_MIN: Final = 64
_POPULARITY_TABLE = 1 << 20
_RTT_MAX_NS = 200e6
_STAGE = {stage: index for index, stage in enumerate(schema.STAGES)}
# Median and spread (of the natural logarithm) of each stage between machines of one cluster.
_TYPICAL: Final[dict[str, tuple[float, float]]] = {
    "client_send_queue": (20_000, 1.4),
    "request_stack": (25_000, 0.5),
    "request_wire": (40_000, 0.5),
    "server_recv_queue": (60_000, 1.7),
    "server_app": (0, 0.9),
    "server_send_queue": (15_000, 1.0),
    "response_stack": (30_000, 0.5),
    "response_wire": (40_000, 0.5),
    "client_recv_queue": (25_000, 1.5),
}


@dataclass(frozen=True)
class Population:
    """Everything that calls are drawn from. Arrays `per_x` have a row for each x."""

    services: list[str]
    # Sorted by (service, name): the row is the `method_id`.
    methods: list[tuple[str, str]]
    service_of: Array
    popularity: Array
    # Tables of methods for calls that call nobody, and for those that do.
    leaf_methods: Array
    inner_methods: Array
    # Of ln(ns), per method and stage, at load 0; bytes and cycles alike.
    stage_mu: Array
    stage_sigma: Array
    bytes_mu: Array
    bytes_sigma: Array
    cycles_mu: Array
    cycles_sigma: Array
    # Whether calls of a method say their cycles (F21: not all do).
    has_cycles: Array
    clusters: list[str]
    rtt_ns: Array
    # Services' clusters, the first `home_count` of each row.
    homes: Array
    home_count: Array
    deployed: Array
    # Share of calls that leave their cluster though the service is there, and among how many of its clusters
    # they choose: the showcase's go to one, as to where data are (F19).
    cross_share: Array
    cross_count: Array
    machines_per_cluster: int
    clock_ns: Array
    # Per service, cluster and half hour: load from 0 to 1, cycles per instruction; what they do to stages.
    load: Array
    cpi: Array
    queue_factor: Array
    app_factor: Array

    @property
    def machines(self) -> list[str]:
        """Names by number."""
        count = self.machines_per_cluster
        return [f"{cluster}-m{machine:03}" for cluster in self.clusters for machine in range(count)]

    def method_table(self) -> pa.Table:
        """As the store has it."""
        services, names = zip(*self.methods, strict=True)
        return pa.table([range(len(names)), services, names], schema=schema.METHOD)


def draw(options: FleetOptions) -> Population:
    """The population of a description."""
    rng = stream(options.seed, 2)
    services, methods = _names(options)
    service_of = np.array([services.index(service) for service, _ in methods], np.int32)
    rank = _ranks(rng, services, methods)
    popularity = zipf_weights(len(methods), options.zipf)[rank]
    clusters = [f"cluster-{index:02}" for index in range(options.clusters)]
    deployed, homes, home_count = _deploy(rng, services, options.clusters)
    load, cpi, queue_factor, app_factor = _conditions(rng, services, options.clusters)
    return Population(
        services,
        methods,
        service_of,
        popularity,
        lookup(popularity, _POPULARITY_TABLE),
        _inner(popularity, rank),
        *_stages(rng, methods, rank),
        *_sizes(rng, methods),
        *_cycles(rng, len(methods)),
        clusters,
        _rtt(rng, options.clusters),
        homes,
        home_count,
        deployed,
        _cross_shares(rng, services),
        np.where([name in SHOWCASE for name in services], 1, home_count),
        options.machines_per_cluster,
        np.rint(rng.normal(0, options.skew_ns, options.clusters * options.machines_per_cluster)).astype(np.int64),
        load,
        cpi,
        queue_factor,
        app_factor,
    )


def _names(options: FleetOptions) -> tuple[list[str], list[tuple[str, str]]]:
    rest = max(1, options.service_count - len(SHOWCASE))
    services = sorted([*SHOWCASE, *(f"service-{index:03}" for index in range(rest))])
    methods = [(service, method) for service, (_, method, _) in SHOWCASE.items()]
    # The showcase's services have no other methods: Table 1 takes of each the one with most time.
    plain = [service for service in services if service not in SHOWCASE]
    for index in range(options.methods - len(methods)):
        methods.append((plain[index % len(plain)], f"Method{index // len(plain):03}"))
    return services, sorted(methods)


def _ranks(rng: np.random.Generator, services: list[str], methods: list[tuple[str, str]]) -> Array:
    """Each method's rank by popularity: the showcase's eight first, in their order."""
    first = [methods.index((service, method)) for service, (_, method, _) in SHOWCASE.items()]
    others = rng.permutation([index for index in range(len(methods)) if index not in set(first)])
    rank = np.empty(len(methods), np.int64)
    rank[np.concatenate([np.array(first), others])] = np.arange(len(methods))
    return rank


def _inner(popularity: Array, rank: Array) -> Array:
    """Methods that call others: not the storage that the most popular ones are."""
    shares = np.where(rank < len(SHOWCASE), 0.0, np.sqrt(popularity))
    return lookup(shares / shares.sum(), _POPULARITY_TABLE)


def _stages(rng: np.random.Generator, methods: list[tuple[str, str]], rank: Array) -> tuple[Array, Array]:
    count = len(methods)
    mu = np.empty((count, len(_TYPICAL)))
    sigma = np.empty_like(mu)
    for stage, (median, spread) in _TYPICAL.items():
        column = _STAGE[stage]
        # Popular methods are fast, rare ones slow (F3): from 0.2 ms to some 200 ms.
        ln_median = np.log(median) if median else np.log(2e5) + 7 * (rank / count) ** 0.6
        mu[:, column] = ln_median + rng.normal(0, 0.7 if median == 0 else 0.4, count)
        sigma[:, column] = spread * rng.uniform(0.7, 1.3, count)
    for service, (stage, name, _) in SHOWCASE.items():
        row = methods.index((service, name))
        mu[row] = [np.log(median or 60_000) for median, _ in _TYPICAL.values()]
        mu[row, _STAGE[stage]] = np.log(800_000)
        sigma[row, _STAGE[stage]] = 1.2
    return mu.astype(np.float32), sigma.astype(np.float32)


def _sizes(rng: np.random.Generator, methods: list[tuple[str, str]]) -> tuple[Array, Array]:
    """Columns: request, response (F6: medians of 1530 and 315 bytes for half of methods)."""
    mu = np.log([1530, 315]) + rng.normal(0, 1.5, (len(methods), 2))
    for service, (_, name, size) in SHOWCASE.items():
        mu[methods.index((service, name)), 0] = np.log(size)
    return mu.astype(np.float32), (np.array([1.6, 2.3]) * rng.uniform(0.7, 1.3, (len(methods), 2))).astype(
        np.float32
    )


def _cycles(rng: np.random.Generator, count: int) -> tuple[Array, Array, Array]:
    """F21: cheap calls vary little, others by one to two orders; not tied to time or size."""
    mu = np.log(0.02) + rng.exponential(0.5, count)
    sigma = np.where(rng.random(count) < 0.02, 0.1, rng.uniform(1.0, 1.9, count))
    return mu.astype(np.float32), sigma.astype(np.float32), rng.random(count) < 0.8


def _rtt(rng: np.random.Generator, clusters: int) -> Array:
    """Clusters on a globe: the farthest pair has the longest wide-area round trip, some 200 ms (F12)."""
    points = rng.normal(size=(clusters, 3))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    found: Array = (np.arccos(np.clip(points @ points.T, -1, 1)) / np.pi * _RTT_MAX_NS).astype(np.float32)
    np.fill_diagonal(found, 0)
    return found


def _deploy(rng: np.random.Generator, services: list[str], clusters: int) -> tuple[Array, Array, Array]:
    """Which clusters each service runs in: nearly all, or calls would cross the world at every step."""
    # One of four is missing in one cluster; none of the showcase, whose stage would no longer dominate.
    missing = [index % 4 == 0 and name not in SHOWCASE for index, name in enumerate(services)]
    count = clusters - np.array(missing) * (clusters > 1)
    homes = rng.permuted(np.tile(np.arange(clusters, dtype=np.int32), (len(services), 1)), axis=1)
    deployed = np.zeros((len(services), clusters), bool)
    for service in range(len(services)):
        deployed[service, homes[service, : count[service]]] = True
    return deployed, homes, count


def _cross_shares(rng: np.random.Generator, services: list[str]) -> Array:
    """So few of the showcase's that wide-area time is in their P99 and not in their P95."""
    shares = rng.uniform(0.002, 0.02, len(services))
    return np.where([name in SHOWCASE for name in services], 0.018, shares).astype(np.float32)


def _conditions(rng: np.random.Generator, services: list[str], clusters: int) -> tuple[Array, Array, Array, Array]:
    """Load and cycles per instruction of each service in each cluster over a day, and what stages feel of them."""
    shape = (len(services), clusters, 1)
    hours = np.arange(BINS) / BINS * 2 * np.pi
    load = rng.uniform(0.3, 0.7, shape) + 0.2 * np.sin(hours + rng.uniform(0, 2 * np.pi, shape))
    # Thrice a day, where load rises once: the two are not to be mistaken for one another.
    cpi = 1.25 + rng.uniform(-0.1, 0.1, shape) + 0.2 * np.sin(3 * hours + rng.uniform(0, 2 * np.pi, shape))
    feels = np.array([service not in RESERVED for service in services], float).reshape(-1, 1, 1)
    queue = np.exp(2 * feels * (load - 0.5))
    app = np.exp(feels * (load - 0.5) + (cpi - 1.25))
    return tuple(values.astype(np.float32) for values in (load, cpi, queue, app))  # type: ignore[return-value]
