"""The calls of each edge in a range of time, with what its handler waited for others taken from its own time.

A sample of them, call by call, as ranks and machines need them; `scotfree.study.analysis.edges` has quantiles of
all calls of each edge, of which a comparison can make nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import lending
from scotfree.study.analysis.answered import SERVER
from scotfree.study.analysis.study import Study
from scotfree.study.edges.times import Range
from scotfree.study.store import trace_words

Array = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]

# Of an edge with more calls about as many are taken, the same ones each time: ranks of more say no more.
EDGE_CALLS_MAX: Final = 20_000
# Of all edges together on a side: 64 B each.
CALLS_MAX: Final = 8_000_000
_COLUMNS: Final = (
    "trace_id",
    "span_id",
    "parent_id",
    "start_ns",
    "method_id",
    "client_service",
    "status",
    "total_ns",
    "server_app_ns",
    "answered_by",
    "client_machine",
    "server_machine",
    "sample_weight",
)
_MACHINES: Final = ("client_machine", "server_machine")
_TEXT: Final = pa.dictionary(pa.int32(), pa.string())
_READ: Final = pa.schema(
    [
        pa.field("edge", pa.int32()),
        pa.field("total", pa.float64()),
        pa.field("handler", pa.float64()),
        pa.field("own", pa.float64()),
        pa.field("by_device", pa.bool_()),
        pa.field("is_failed", pa.bool_()),
        pa.field("is_origin", pa.bool_()),
        pa.field("weight", pa.float64()),
        pa.field("chance", pa.float64()),
        pa.field("client_machine", _TEXT),
        pa.field("server_machine", _TEXT),
    ]
)


class Edge(NamedTuple):
    """Who calls whom for what. A name that no record says is empty; one that is not looked at is `ANY`."""

    client: str
    server: str
    method: str


ANY: Final = "*"


@dataclass
class Count:
    """Calls of an edge, and how many of them failed."""

    calls: int = 0
    errors: int = 0


@dataclass(frozen=True)
class Calls:
    """Calls of one edge on one side; times in ns, NaN where they are not known."""

    total: Floats
    handler: Floats
    # The handler's without what it waited for calls that it made itself; NaN where a device has answered.
    own: Floats
    by_device: Array
    is_failed: Array
    # Whether it failed though no call below it did.
    is_origin: Array
    # Numbers of `Read.machines`, -1 where none is named.
    client_machine: Array
    server_machine: Array


@dataclass(frozen=True)
class Read:
    """The calls of a side's edges, and the names of their machines."""

    calls: Mapping[Edge, Calls]
    machines: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """One of the two that are compared."""

    study: Study
    range: Range | None
    first_ns: int
    last_ns: int
    counts: Mapping[Edge, Count] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        """How many there are."""
        return sum(one.calls for one in self.counts.values())


def side(study: Study, within: Range | None) -> Side:
    """Counts the calls of each edge."""
    span = study.span
    by = [span.client_service.fill_null(""), span.service, span.method]
    counted = span.group_by(client=by[0], server=by[1], method=by[2]).agg(
        calls=span.count(),
        errors=span.count(where=span.status != schema.STATUS_OK),
        first=span.start_ns.min(),
        last=span.start_ns.max(),
    )
    with study.store.at_rest():
        rows = study.engine.arrow(counted).to_pylist()
    counts = {
        Edge(row["client"], row["server"], row["method"]): Count(row["calls"], row["errors"]) for row in rows
    }
    first, last = min((row["first"] for row in rows), default=0), max((row["last"] for row in rows), default=0)
    return Side(study, within, first, last, counts)


def limit(study: Study, within: Range | None) -> None:
    """Has all that asks the study of calls see those of the range only."""
    if within is not None:
        span = study.span
        study.span = span.filter((span.start_ns >= within.from_ns) & (span.start_ns < within.to_ns))


Named = Callable[[Edge], Edge]


def read(of: Side, named: Named, wanted: Mapping[Edge, Count]) -> Read:
    """The calls of edges, under the names that they are compared by."""
    edges = list(wanted)
    each_max = min(EDGE_CALLS_MAX, max(CALLS_MAX // max(len(edges), 1), 100))
    one_in = np.array([max(-(-wanted[edge].calls // each_max), 1) for edge in edges], np.uint64)
    places = {edge: place for place, edge in enumerate(edges)}
    kernel = partial(_partition, _Chosen(_method_names(of.study), named, places, one_in, of.range))
    with of.study.store.at_rest():
        table = of.study.engine.map_partitions(_COLUMNS, kernel, _READ)
    order = np.argsort(table["edge"].to_numpy(), kind="stable")
    columns, machines = _columns(table.take(pa.array(order)))
    bounds = np.searchsorted(columns["edge"], np.arange(len(edges) + 1))
    parts = {edge: slice(bounds[place], bounds[place + 1]) for place, edge in enumerate(edges)}
    calls = {
        edge: _calls({name: values[part] for name, values in columns.items()}) for edge, part in parts.items()
    }
    return Read(calls, machines)


def _method_names(study: Study) -> list[tuple[str, str]]:
    methods = study.store.read("methods").sort_by("method_id")
    return list(zip(methods["service"].to_pylist(), methods["method"].to_pylist(), strict=True))


def _columns(table: pa.Table) -> tuple[dict[str, Array], tuple[str, ...]]:
    """As arrays, machines as numbers of the names beside them."""
    texts = {name: lending.whole(table[name]) for name in _MACHINES}
    machines = sorted({name for column in texts.values() for name in column.dictionary.to_pylist() if name})
    columns: dict[str, Array] = {name: table[name].to_numpy() for name in table.column_names if name not in texts}
    return columns | {name: _numbers(column, machines) for name, column in texts.items()}, tuple(machines)


def _numbers(column: pa.DictionaryArray, names: list[str]) -> Array:
    number = {name: place for place, name in enumerate(names)}
    of = np.array([*(number.get(name, -1) for name in column.dictionary.to_pylist()), -1], np.int32)
    numbers: Array = of[column.indices.fill_null(len(of) - 1).to_numpy()]
    return numbers


def _calls(columns: dict[str, Array]) -> Calls:
    kept = _evenly(columns["weight"], columns["chance"])
    names = ("total", "handler", "own", "by_device", "is_failed", "is_origin", "client_machine", "server_machine")
    return Calls(*(columns[name][kept] for name in names))


def _evenly(weights: Floats, chance: Floats) -> Array:
    """Which calls to keep, where some stand for more than others, so that all stand for as many (R7)."""
    if len(weights) == 0 or weights.min() == weights.max():
        return np.ones(len(weights), np.bool_)
    kept: Array = chance * weights.max() < weights
    return kept


@dataclass(frozen=True)
class _Chosen:
    """Which calls are read, and under which number."""

    methods: list[tuple[str, str]]
    named: Named
    places: Mapping[Edge, int]
    one_in: Array
    range: Range | None

    def edges(self, methods: Array, clients: Array, names: list[str | None]) -> Array:
        """The number of each call's edge, -1 of those that are not wanted."""
        pairs, inverse = np.unique(methods.astype(np.int64) * len(names) + clients, return_inverse=True)
        found = [self._place(int(pair) // len(names), names[int(pair) % len(names)]) for pair in pairs]
        return np.array(found, np.int32)[inverse] if found else np.zeros(0, np.int32)

    def _place(self, method: int, client: str | None) -> int:
        edge = Edge(client or "", *self.methods[method])
        return self.places.get(self.named(edge), -1)


def _partition(chosen: _Chosen, table: pa.Table) -> pa.Table:
    """The wanted calls of a partition; what lies below them is looked for in all of it."""
    table = table.combine_chunks()
    ids = lending.whole(table["trace_id"].cast(pa.binary(16)))
    own, parent = (_keys(ids, lending.integers(table[name])) for name in ("span_id", "parent_id"))
    failed = np.asarray(table["status"].cast(pa.string()).to_numpy() != schema.STATUS_OK)
    handler, total = lending.floats(table["server_app_ns"]), lending.floats(table["total_ns"])
    has_parent = lending.known(table["parent_id"]) == 1
    start = lending.integers(table["start_ns"])
    waited = _at(*_covered(parent, start, total, has_parent & ~np.isnan(total)), own)
    below = np.isin(own, parent[has_parent & failed])
    clients = lending.whole(table["client_service"].cast(pa.string())).dictionary_encode()
    names = [*clients.dictionary.to_pylist(), None]
    codes = clients.indices.fill_null(len(names) - 1).to_numpy()
    edge = chosen.edges(table["method_id"].to_numpy(), codes, names)
    kept = _kept(chosen, edge, own, start)
    answered = table["answered_by"].cast(pa.string())
    by_device = np.asarray(pc.not_equal(answered, SERVER).fill_null(False).to_numpy(), np.bool_)
    columns = {
        "edge": edge,
        "total": total,
        "handler": handler,
        "own": np.where(by_device, np.nan, np.maximum(handler - waited, 0.0)),
        "by_device": by_device,
        "is_failed": failed,
        "is_origin": failed & ~below,
        "weight": lending.weights(table["sample_weight"]),
        # Other bits than those that choose one in so many.
        "chance": (own >> np.uint64(11)).astype(np.float64) / 2.0**53,
    }
    arrays = {name: pa.array(values[kept]) for name, values in columns.items()}
    machines = {name: table[name].filter(pa.array(kept)).cast(_TEXT) for name in _MACHINES}
    return pa.table(arrays | machines).select(_READ.names).cast(_READ)


def _kept(chosen: _Chosen, edge: Array, own: Array, start: Array) -> Array:
    kept: Array = edge >= 0
    if chosen.range is not None:
        kept &= (start >= chosen.range.from_ns) & (start < chosen.range.to_ns)
    one_in = chosen.one_in[np.maximum(edge, 0)] if len(chosen.one_in) else np.ones(len(edge), np.uint64)
    kept &= own % one_in == 0
    return kept


def _keys(trace_ids: pa.Array, spans: Array) -> Array:
    """One number for a trace and a span of it, spread evenly; two are the same in one of 10^7 partitions."""
    words = trace_words(trace_ids)
    mixed = words[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ words[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = mixed ^ spans.astype(np.int64).view(np.uint64) * np.uint64(0x165667B19E3779F9)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    key: Array = mixed ^ mixed >> np.uint64(31)
    return key


def _covered(parent: Array, start: Array, total: Floats, which: Array) -> tuple[Array, Floats]:
    """Of each caller, how long at least one of its own calls was under way. Callers in order."""
    parent, start = parent[which], start[which]
    order = np.lexsort((start, parent))
    parent, start = parent[order], start[order]
    end = start + total[which][order].astype(np.int64)
    is_first = np.concatenate([[True], parent[1:] != parent[:-1]]) if len(parent) else np.zeros(0, np.bool_)
    group = np.cumsum(is_first) - 1
    reach = _greatest_so_far(end, group)
    before = np.where(is_first, start, np.concatenate([start[:1], reach[:-1]]))
    added = np.maximum(end - np.maximum(start, before), 0)
    return parent[is_first], np.bincount(group, added, minlength=int(is_first.sum())).astype(np.float64)


def _greatest_so_far(values: Array, group: Array) -> Array:
    """Within each group, by doubling the distance that is looked back."""
    reach, distance = values.copy(), 1
    while distance < len(reach):
        same = group[distance:] == group[:-distance]
        if not same.any():
            break
        reach[distance:] = np.where(same, np.maximum(reach[distance:], reach[:-distance]), reach[distance:])
        distance *= 2
    return reach


def _at(keys: Array, values: Floats, wanted: Array) -> Floats:
    """The value of each wanted key, 0 where there is none."""
    if not len(keys):
        return np.zeros(len(wanted))
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Floats = np.where(keys[place] == wanted, values[place], 0.0)
    return found
