"""The fleet's metrics: 700 days of requests and cycles; a day of what clusters felt and machines used.

What clusters felt is what calls were drawn with (`Population.load`, `.cpi`): where load is high, queues and
applications are slow.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.fleet.calls import DAY_NS, DAY_START_NS
from scotfree.study.fleet.draws import Array, stream
from scotfree.study.fleet.population import BINS, SHOWCASE, Population

DAYS: Final = 700
# Requests per cycle at the end by those at the beginning (F1: +64 %).
GROWTH: Final = 1.64
# Services of which some machines are full while others are not (section 4.3).
SATURATED: Final = ("spanner", "f1", "ml-inference")
MACHINES_SHOWN: Final = 12
_NOISE: Final = 0.02
_RPS: Final = 1e9
_CYCLES_PER_REQUEST: Final = 50_000.0
_LIMIT_CPUS: Final = 16.0


def tables(seed: int, who: Population) -> list[pa.Table]:
    """All of `schema.METRIC`, in three parts."""
    rng = stream(seed, 8)
    return [_growth(rng, who), _felt(rng, who), _used(rng, who)]


def service_shares(who: Population) -> Array:
    """Each service's share of calls."""
    return np.bincount(who.service_of, who.popularity, len(who.services))


def _growth(rng: np.random.Generator, who: Population) -> pa.Table:
    """Days of all services, the last one in half hours: a year's season, growth of requests per cycle."""
    day = np.concatenate([np.arange(DAYS - 1, dtype=float), np.full(BINS, DAYS - 1.0)])
    ts = DAY_START_NS + ((day - (DAYS - 1)) * DAY_NS).astype(np.int64)
    ts[-BINS:] += np.arange(BINS) * (DAY_NS // BINS)
    season = 1 + 0.1 * np.sin(day / 365 * 2 * np.pi)
    shape = (len(who.services), len(day))
    cycles = service_shares(who)[:, None] * _RPS * _CYCLES_PER_REQUEST * season * _noise(rng, shape)
    rps = cycles / _CYCLES_PER_REQUEST * GROWTH ** (day / (DAYS - 1)) * _noise(rng, shape, 0.005)
    service = np.repeat(np.arange(shape[0]), shape[1])
    times = np.tile(ts, shape[0])
    return pa.concat_tables(
        [
            _table(who, "rps", times, rps.ravel(), service=service),
            _table(who, "cpu_cycles", times, cycles.ravel(), service=service),
        ]
    )


def _felt(rng: np.random.Generator, who: Population) -> pa.Table:
    """The four of Table 2 for each service, cluster and half hour: three rise with load, one is its own."""
    load, cpi = who.load.astype(float), who.cpi.astype(float)
    felt = {
        "cpu_util": load,
        "mem_bw": 10 + 60 * load,
        "long_wakeup_rate": 0.2 * load**2,
        "cpi": cpi,
    }
    service, cluster, half_hour = (axis.ravel() for axis in np.indices(load.shape))
    runs = who.deployed[service, cluster]
    ts = DAY_START_NS + half_hour * (DAY_NS // BINS)
    return pa.concat_tables(
        [
            _table(
                who,
                name,
                ts[runs],
                (values * _noise(rng, values.shape)).ravel()[runs],
                service=service[runs],
                cluster=cluster[runs],
            )
            for name, values in felt.items()
        ]
    )


def machine_factors(who: Population, service: str) -> Array:
    """How much more than its cluster each of a service's machines is used."""
    spread = np.linspace(1.1, 0.9, MACHINES_SHOWN)
    if service in SATURATED:
        spread[:2] = 2.0
    return spread


def _used(rng: np.random.Generator, who: Population) -> pa.Table:
    """Processors used and allowed, of the showcase's machines (F22)."""
    parts = []
    for name in SHOWCASE:
        service = who.services.index(name)
        load = who.load[service].astype(float)[:, None, :] * machine_factors(who, name)[None, :, None]
        load = load * _noise(rng, load.shape)
        cluster, machine, half_hour = (axis.ravel() for axis in np.indices(load.shape))
        runs = who.deployed[service, cluster]
        number = cluster * who.machines_per_cluster + (service * 7 + machine) % who.machines_per_cluster
        labels = {
            "service": np.full(int(runs.sum()), service),
            "cluster": cluster[runs],
            "machine": number[runs],
        }
        ts = (DAY_START_NS + half_hour * (DAY_NS // BINS))[runs]
        used = np.minimum(load, 1).ravel()[runs] * _LIMIT_CPUS
        parts += [
            _table(who, "cpu_used", ts, used, **labels),
            _table(who, "cpu_limit", ts, np.full(len(ts), _LIMIT_CPUS), **labels),
        ]
    return pa.concat_tables(parts)


def _noise(rng: np.random.Generator, shape: tuple[int, ...], sigma: float = _NOISE) -> Array:
    return np.exp(rng.normal(0, sigma, shape))


def _table(who: Population, series: str, ts: Array, value: Array, **labels: Array) -> pa.Table:
    names = {"service": who.services, "cluster": who.clusters, "machine": who.machines}
    columns: dict[str, Any] = {
        "series": _coded(np.zeros(len(ts), np.int32), [series]),
        "ts_ns": pa.array(ts, pa.int64()),
        "value": pa.array(value),
        **{label: _coded(codes, names[label]) for label, codes in labels.items()},
    }
    arrays = [columns.get(field.name, pa.nulls(len(ts), field.type)) for field in schema.METRIC]
    return pa.Table.from_arrays(arrays, schema=schema.METRIC)


def _coded(codes: Array, names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(names))
