"""Calls of whole traces as columns: drawn, placed, timed; a level of all trees at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scotfree.study import schema
from scotfree.study.fleet.draws import Array, mix
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.fleet.population import BINS, BYTES_MIN, STATUSES, Population
from scotfree.study.fleet.shapes import Shapes

DAY_NS = 86_400 * 10**9
# The study's day: the last of the paper's 700 (2022-11-30).
DAY_START_NS = 1_669_766_400 * 10**9
# Of cancelled calls, those that are hedges: the paper suspects most (section 4.4).
_HEDGES = 0.6
# Of the logarithm: what is slower, or larger, does not occur.
_DEVIATIONS_MAX = 6.0
_QUEUES = [schema.STAGES.index(stage) for stage in schema.QUEUES]
_WIRES = [schema.STAGES.index(stage) for stage in schema.WIRES]
# Stages that compute: cycles per instruction are felt there.
_COMPUTING = [schema.APP, *(schema.STAGES.index(stage) for stage in schema.STACKS)]
_BEFORE_APP = slice(0, schema.APP)


@dataclass(frozen=True)
class Traces:
    """Traces to draw calls of: ids as two words, shapes, starts."""

    ids: Array
    shape: Array
    start_ns: Array


@dataclass(frozen=True)
class Rows:
    """Calls in order of their traces. Parents are rows; -1: root."""

    trace: Array
    node: Array
    parent: Array
    # Rows of each level of the trees, roots first.
    levels: list[Array]

    def up(self) -> Array:
        """Each call's parent, its own row for roots."""
        return np.where(self.parent < 0, np.arange(len(self.parent)), self.parent)


class Drawer:
    """Draws calls from a population; what is the same for all calls is computed once."""

    def __init__(self, options: FleetOptions, population: Population, shapes: Shapes) -> None:
        self._population = population
        self._shapes = shapes
        # By stage: a stage's values of all methods lie together.
        self._stage_mu = np.ascontiguousarray(population.stage_mu.T)
        self._stage_sigma = np.ascontiguousarray(population.stage_sigma.T)
        hedge_share = _HEDGES * STATUSES["CANCELLED"][0] * options.error_share
        # Of calls that may be hedges, those that are.
        self._hedges = min(1.0, hedge_share / max(float(shapes.may_hedge.mean()), 1e-9))
        self._status_below, self._cycle_factor = self._statuses(options.error_share)

    def _statuses(self, error_share: float) -> tuple[Array, Array]:
        """Thresholds of a uniform value for each status, and what a call of it costs."""
        shares = np.array([share * error_share for share, _ in STATUSES.values()])
        # Hedges are cancelled: so many calls fewer need another reason.
        shares[0] *= 1 - _HEDGES
        factors = np.array([1.0, *(factor for _, factor in STATUSES.values())], np.float32)
        return np.cumsum(shares), factors

    def columns(self, traces: Traces, rng: np.random.Generator) -> dict[str, Array]:
        """Columns by the names of `schema.SPAN`, codes for its dictionaries; and `descendants`, `level`."""
        rows = self._rows(traces)
        count = len(rows.trace)
        hedge = self._shapes.may_hedge[rows.node] & (rng.random(count, np.float32) < self._hedges)
        method = self._methods(rows, hedge, rng).astype(np.intp)
        service = self._population.service_of[method]
        status = self._status(hedge, rng)
        place = self._place(rows, service, rng)
        day_bin = ((traces.start_ns - DAY_START_NS) * BINS // DAY_NS)[rows.trace]
        stages = self._stages(method, service, place, day_bin, rng)
        found = {
            "span_id": self._ids(traces, rows),
            "method_id": method,
            "service": service,
            "status": status,
            "is_hedge": hedge,
            **place,
            **self._times(traces, rows, stages, hedge, rng),
            **self._costs(method, status, rng),
            "sample_weight": self._shapes.weight[traces.shape][rows.trace],
            "descendants": self._shapes.descendants[rows.node],
            "level": self._shapes.level[rows.node],
            "trace": rows.trace,
        }
        found["start_ns"] += self._population.clock_ns[place["client_machine"]]
        found["client_service"] = service[rows.up()]
        found["parent_id"] = found["span_id"][rows.up()]
        return found

    def _rows(self, traces: Traces) -> Rows:
        size = self._shapes.size[traces.shape]
        ends = np.cumsum(size)
        trace = np.repeat(np.arange(len(size)), size)
        place = np.arange(ends[-1]) - np.repeat(ends - size, size)
        node = place + self._shapes.start[traces.shape][trace]
        parent = self._shapes.parent[node]
        parent = np.where(parent < 0, -1, parent + np.arange(ends[-1]) - place)
        level = self._shapes.level[node]
        order = np.argsort(level, kind="stable")
        return Rows(trace, node, parent, np.split(order, np.cumsum(np.bincount(level))[:-1]))

    def _methods(self, rows: Rows, hedge: Array, rng: np.random.Generator) -> Array:
        leaf = self._shapes.leaf[rows.node]
        tables = (self._population.inner_methods, self._population.leaf_methods)
        draw = rng.random(len(leaf), np.float32)
        method = np.where(leaf, *(table[(draw * len(table)).astype(np.int64)] for table in reversed(tables)))
        again = np.flatnonzero(hedge)
        method[again] = method[again - 1]
        return method

    def _status(self, hedge: Array, rng: np.random.Generator) -> Array:
        """0 for success, else the place in STATUSES, from 1."""
        draw = rng.random(len(hedge))
        status = np.zeros(len(hedge), np.int8)
        failed = np.flatnonzero(draw < self._status_below[-1])
        status[failed] = np.searchsorted(self._status_below, draw[failed], side="right") + 1
        status[hedge] = 1
        return status

    def _ids(self, traces: Traces, rows: Rows) -> Array:
        words = traces.ids[rows.trace, 1] + rows.node.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return mix(words).view(np.int64)

    def _place(self, rows: Rows, service: Array, rng: np.random.Generator) -> dict[str, Array]:
        """Clusters and machines: a call comes from where its parent runs, and mostly stays there."""
        who = self._population
        count = len(service)
        away = rng.random(count, np.float32) < who.cross_share[service]
        other = (rng.random(count, np.float32) * who.cross_count[service]).astype(np.int64)
        elsewhere = who.homes[service, other]
        # Squared: the first machines of a service get more than their share.
        per = who.machines_per_cluster
        machine = (service * 7 + (rng.random(count, np.float32) ** 1.3 * min(per, 12)).astype(np.int32)) % per
        client = rng.integers(0, len(who.clusters), count, np.int32)
        server = client.copy()
        for rows_of_level in rows.levels:
            parent = rows.parent[rows_of_level]
            here = np.where(parent < 0, client[rows_of_level], server[parent])
            of = service[rows_of_level]
            stays = ~away[rows_of_level] & who.deployed[of, here]
            client[rows_of_level] = here
            server[rows_of_level] = np.where(stays, here, elsewhere[rows_of_level])
        server_machine = server * per + machine
        root = client * per + machine
        client_machine = np.where(rows.parent < 0, root, server_machine[rows.up()])
        return {
            "server_cluster": server,
            "client_cluster": client,
            "server_machine": server_machine,
            "client_machine": client_machine,
        }

    def _stages(
        self, method: Array, service: Array, place: dict[str, Array], day_bin: Array, rng: np.random.Generator
    ) -> list[Array]:
        """Own times of the nine stages, in ns as floats; the application's without its calls."""
        who = self._population
        clusters = len(who.clusters)
        # One index into the flat table is several times as fast as three into the table.
        where = (service.astype(np.intp) * clusters + place["server_cluster"]) * BINS + day_bin
        queue, app = who.queue_factor.ravel().take(where), who.app_factor.ravel().take(where)
        pair = place["client_cluster"].astype(np.intp) * clusters + place["server_cluster"]
        way = who.rtt_ns.ravel().take(pair) / 2
        found: list[Array] = []
        for mu, sigma in zip(self._stage_mu, self._stage_sigma, strict=True):
            stage = len(found)
            values = _lognormal(rng, mu.take(method), sigma.take(method))
            if stage in _QUEUES:
                values *= queue
            if stage in _COMPUTING:
                values *= app
            if stage in _WIRES:
                values += way
            found.append(values)
        return found

    def _times(
        self, traces: Traces, rows: Rows, stages: list[Array], hedge: Array, rng: np.random.Generator
    ) -> dict[str, Array]:
        """Integer stages, totals, starts. A call's application lasts its own time and its slowest call's."""
        whole = [values.astype(np.int64) for values in stages]
        own = whole[schema.APP]
        tax = np.sum(whole, axis=0) - own
        slowest = np.zeros_like(own)
        for level in reversed(rows.levels[1:]):
            # Nobody waits for a hedge: the other answer comes first.
            waits = level[~hedge[level]]
            ends = tax[waits] + own[waits] + slowest[waits]
            np.maximum.at(slowest, rows.parent[waits], ends)
        whole[schema.APP] = own + slowest
        lead = np.sum(whole[_BEFORE_APP], axis=0)
        start = traces.start_ns[rows.trace]
        wait = rng.random(len(own), np.float32)
        for level in rows.levels[1:]:
            parent = rows.parent[level]
            start[level] = start[parent] + lead[parent] + (wait[level] * own[parent]).astype(np.int64)
        return {
            **dict(zip(schema.STAGE_COLUMNS, whole, strict=True)),
            "total_ns": tax + whole[schema.APP],
            "request_side_ns": lead,
            "response_side_ns": tax - lead,
            "start_ns": start,
        }

    def _costs(self, method: Array, status: Array, rng: np.random.Generator) -> dict[str, Array]:
        who = self._population
        sizes = [
            BYTES_MIN + _lognormal(rng, who.bytes_mu[method, way], who.bytes_sigma[method, way]).astype(np.int64)
            for way in (0, 1)
        ]
        cycles = _lognormal(rng, who.cycles_mu[method], who.cycles_sigma[method]) * self._cycle_factor[status]
        return {
            "req_bytes": sizes[0],
            "resp_bytes": sizes[1],
            "cpu_cycles": cycles.astype(np.float64),
            "no_cycles": ~who.has_cycles[method],
        }


def _lognormal(rng: np.random.Generator, mu: Array, sigma: Array) -> Array:
    """Logarithmic normal in its body, with a heavier tail above two deviations."""
    z = rng.standard_normal(len(mu), np.float32)
    beyond = np.maximum(z - 2, 0)
    z += 0.3 * beyond * beyond
    np.minimum(z, _DEVIATIONS_MAX, out=z)
    z *= sigma
    z += mu
    return np.exp(z, out=z)
