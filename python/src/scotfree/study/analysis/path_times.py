"""What the calls of a method wait for at their P50, P95 and P99: time on the critical path by method and by stack.

Of a sample: at each percentile the successful calls whose ranks are nearest to it. docs/design/critical-path.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final, Protocol

import ibis
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import critical_path, lending
from scotfree.study.analysis.critical_path import Calls, Step
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.quantiles import good, weight
from scotfree.study.analysis.study import Study
from scotfree.study.engine import column

PS: Final = (0.50, 0.95, 0.99)
# Calls are taken that lie so near to a percentile, as a share of all: the P95 is P94 to P96. Where these are few,
# some more; where they are very many, about so many.
NEAR: Final = 0.01
NEAR_MOST: Final = 0.05
CALLS_LEAST: Final = 5
CALLS_MOST: Final = 50
# So many calls of traces are read, some 200 bytes each, those nearest to their percentiles first.
READ_MOST: Final = 200_000
# A trace of more calls is left out.
TRACE_MOST: Final = 25_000
# So many calls on paths are looked at, some 7 us each: of a deep trace each of its calls may be at a percentile.
STEPS_MOST: Final = 500_000
_NONE: Final = -1
Array = np.ndarray[Any, Any]
# Methods of calls that nobody made: a report has those that take most time.
ENTRIES_MOST: Final = 8
# Of a deeper stack the first so many methods are named: texts of all would grow with the square of the depth.
FRAMES_MOST: Final = 64
# How such a stack ends.
DEEPER: Final = ";\u2026"

_TIMES: Final = [
    # Means over the calls at this percentile: how often it is on the path, its time there with and without that of
    # those it waited for, and what of the latter lies outside the handler where both sides' records are known.
    pa.field("frequency", pa.float64()),
    pa.field("inclusive_ns", pa.float64()),
    pa.field("exclusive_ns", pa.float64()),
    pa.field("outside_ns", pa.float64()),
    # Of the time of the calls at this percentile.
    pa.field("share", pa.float64()),
]
_OF: Final = [
    *schema.METHOD,
    pa.field("p", pa.float64()),
    # How many calls at the percentile, and how long they take.
    pa.field("calls", pa.int64()),
    pa.field("total_ns", pa.float64()),
]
_ON: Final = [
    pa.field(f"on_{name}", kind) for name, kind in zip(schema.METHOD.names, schema.METHOD.types, strict=True)
]
METHODS: Final = pa.schema([*_OF, *_ON, *_TIMES])
STACKS: Final = pa.schema([*_OF, pa.field("stack", pa.string()), *_ON, *_TIMES])

# Of a call without those that it waited for.
_OWN: Final = ("exclusive_ns", "outside_ns", "share")


class Source(Protocol):
    """What this asks of an engine."""

    def table(self, name: str) -> Any:
        """See `Engine.table`."""

    def register(self, name: str, table: pa.Table) -> Any:
        """See `Engine.register`."""

    def arrow(self, expression: Any) -> pa.Table:
        """See `Engine.arrow`."""


@dataclass(frozen=True)
class PathTimes:
    """Rows of `METHODS`, and of `STACKS`: each method by its callers on the path, as CRISP's folded lines."""

    methods: pa.Table
    stacks: pa.Table


@once
def of_entries(study: Study) -> PathTimes:
    """Of the methods that nobody calls, in the order of the time that they take."""
    return at_percentiles(study.engine, _entries(study))


def _entries(study: Study) -> list[int]:
    calls = good(study.span)
    calls = calls.filter(calls.parent_id.isnull())
    time = (_time(calls).cast("float64") * weight(calls)).sum()
    found = calls.group_by("method_id").agg(time=time)
    most = found.filter(found.time > 0).order_by([found.time.desc(), found.method_id]).limit(ENTRIES_MOST)
    return list(study.engine.arrow(most)["method_id"].to_pylist())


def at_percentiles(source: Source, methods: Sequence[int]) -> PathTimes:
    """Of these methods, in their order; no row of one without a successful call that says how long it took."""
    groups = _groups(source, methods)
    rows = [row for group in groups for row in group.folded()]
    return PathTimes(_summed(groups), pa.Table.from_pylist(rows, schema=STACKS))


def methods_at_percentiles(source: Source, methods: Sequence[int]) -> pa.Table:
    """The same without stacks, whose texts take longest."""
    return _summed(_groups(source, methods))


def _groups(source: Source, methods: Sequence[int]) -> list[_Group]:
    """In the order of the methods, and of the percentiles."""
    chosen = _within_budget(source, _chosen(source, methods)) if methods else None
    if not chosen:
        return []
    order = {method: place for place, method in enumerate(methods)}
    groups = _grouped(_Traces(_read(source, chosen)), chosen)
    return [groups[key] for key in sorted(groups, key=lambda key: (order[key[0]], key[1]))]


def _time(calls: Any) -> Any:
    """As the client saw it, and where it has no record, as the server did."""
    return calls.total_ns.coalesce(calls.server_app_ns)


def _chosen(source: Source, methods: Sequence[int]) -> pa.Table:
    """The calls near the percentiles: trace_id, span_id, method_id, weight, rank (0 to 1), and `p50` to `p99`."""
    calls = good(source.table("span"))
    calls = calls.filter(calls.method_id.isin(list(methods)))
    timed = calls.select(
        "trace_id",
        "span_id",
        "method_id",
        time=_time(calls),
        weight=weight(calls),
        is_client=calls.total_ns.notnull(),
    )
    timed = timed.filter(timed.time.notnull())
    # Clients' times and servers' are not mixed: the side that more calls are known of speaks.
    whole = ibis.window(group_by="method_id")
    sided = timed.mutate(is_most=timed.is_client.cast("float64").mean().over(whole) >= 0.5)
    sided = sided.filter(sided.is_client == sided.is_most)
    ordered = ibis.window(
        group_by="method_id", order_by=["time", "trace_id", "span_id"], preceding=None, following=0
    )
    ranked = sided.mutate(
        reached=sided.weight.sum().over(ordered),
        all=sided.weight.sum().over(whole),
        samples=sided.count().over(whole),
    )
    ranked = ranked.mutate(
        upper=ranked.reached / ranked["all"],
        lower=(ranked.reached - ranked.weight) / ranked["all"],
        near=_near(ranked.samples.cast("float64")),
    )
    marked = ranked.mutate(**{column(p): _is_near(ranked, p) for p in PS})
    kept = marked.filter(reduce(or_, (marked[column(p)] for p in PS)))
    return source.arrow(
        kept.select(
            "trace_id", "span_id", "method_id", "weight", *map(column, PS), rank=(kept.lower + kept.upper) / 2
        ).order_by(["method_id", "rank", "trace_id", "span_id"])
    )


def _near(samples: Any) -> Any:
    """How far from a percentile calls are taken."""
    few = ibis.greatest(ibis.literal(NEAR), ibis.least(ibis.literal(NEAR_MOST), CALLS_LEAST / 2 / samples))
    return ibis.least(few, CALLS_MOST / 2 / samples)


def _is_near(ranked: Any, p: float) -> Any:
    """Whether the middle of a call's ranks is near, or the percentile is one of them."""
    rank = (ranked.lower + ranked.upper) / 2
    # Sums of weights lie beside the true ones by a little.
    slack = schema.ROUNDING
    is_there = (ranked.upper >= p - slack) & (ranked.lower < p - slack)
    return ((rank >= p - ranked.near - slack) & (rank < p + ranked.near - slack)) | is_there


@dataclass(frozen=True)
class _Chosen:
    """A call at a percentile of its method."""

    method: int
    p: float
    name: tuple[bytes, int]
    weight: float


def _within_budget(source: Source, near: pa.Table) -> list[_Chosen]:
    """Of each method and percentile those nearest to it, turn by turn, until their traces are much to read."""
    columns = {name: near[name].to_pylist() for name in near.column_names}
    turns: list[tuple[int, int, float, int]] = []
    for p in PS:
        at = [row for row, is_near in enumerate(columns[column(p)]) if is_near]
        of_method: dict[int, list[int]] = {}
        for row in sorted(at, key=lambda row: (abs(columns["rank"][row] - p), row)):
            of_method.setdefault(columns["method_id"][row], []).append(row)
        turns += [(turn, row, p, id_) for id_, rows in of_method.items() for turn, row in enumerate(rows)]
    sizes, taken, found = _sizes(source, near), set[bytes](), []
    room = READ_MOST
    for _, row, p, method in sorted(turns):
        trace = columns["trace_id"][row]
        if sizes[trace] > TRACE_MOST:
            continue
        if trace not in taken:
            room -= sizes[trace]
            taken.add(trace)
        # Whoever comes later goes without: small traces alone would say something else.
        if room < 0:
            break
        found.append(_Chosen(method, p, (trace, columns["span_id"][row]), columns["weight"][row]))
    return found


def _of_traces(source: Source, traces: Iterable[bytes]) -> Any:
    """The calls of traces."""
    wanted = source.register("path_traces", pa.table({"trace_id": pa.array(sorted(set(traces)), pa.binary())}))
    return source.table("span").semi_join(wanted, "trace_id")


def _sizes(source: Source, near: pa.Table) -> dict[bytes, int]:
    """How many calls each trace has."""
    span = _of_traces(source, near["trace_id"].to_pylist())
    found = source.arrow(span.group_by("trace_id").agg(calls=span.count()))
    return dict(zip(found["trace_id"].to_pylist(), found["calls"].to_pylist(), strict=True))


def _read(source: Source, chosen: Sequence[_Chosen]) -> pa.Table:
    span = _of_traces(source, (one.name[0] for one in chosen))
    return source.arrow(
        span.select(
            *("trace_id", "span_id", "parent_id", "start_ns", *schema.METHOD.names, "total_ns", "server_app_ns"),
            clock=ibis.ifelse(span.total_ns.notnull(), span.client_machine, span.server_machine),
        ).order_by(["start_ns", "span_id"])
    )


class _Traces:
    """The calls of some traces in memory."""

    def __init__(self, calls: pa.Table) -> None:
        traces = lending.whole(calls["trace_id"].cast(pa.binary())).dictionary_encode()
        self._traces = {trace: code for code, trace in enumerate(traces.dictionary.to_pylist())}
        self._ids = np.unique(lending.integers(calls["span_id"]))
        self._keys = self._named(traces.indices.to_numpy(), lending.integers(calls["span_id"]))
        self._rows = np.argsort(self._keys, kind="stable")
        self._keys = self._keys[self._rows]
        above = self._row(self._named(traces.indices.to_numpy(), lending.integers(calls["parent_id"])))
        above[(lending.known(calls["parent_id"]) == 0) | (above == np.arange(len(above)))] = _NONE
        self._callees = np.argsort(above, kind="stable")
        self._bounds = np.searchsorted(above[self._callees], np.arange(len(above) + 1))
        known = pc.coalesce(calls["total_ns"], calls["server_app_ns"], pa.scalar(0, pa.int64()))
        clocks = lending.whole(calls["clock"].cast(pa.string())).dictionary_encode()
        start, taken = lending.integers(calls["start_ns"]), lending.integers(known)
        self.calls = Calls(start, taken, clocks.indices.fill_null(_NONE).to_numpy(), self._called_by)
        self.methods = lending.integers(calls["method_id"])
        # 0 where a side's record is not known.
        self.outside = lending.integers(pc.subtract(calls["total_ns"], calls["server_app_ns"]))
        first = calls.group_by("method_id").aggregate([("service", "min"), ("method", "min")]).to_pylist()
        self.names = {row["method_id"]: (row["service_min"], row["method_min"]) for row in first}

    def row(self, trace: bytes, span: int) -> int:
        """Where a call stands."""
        return int(self._row(self._named(np.array([self._traces[trace]]), np.array([span])))[0])

    def _called_by(self, row: int) -> list[int]:
        callees: list[int] = self._callees[self._bounds[row] : self._bounds[row + 1]].tolist()
        return callees

    def _named(self, traces: Array, spans: Array) -> Array:
        """One number for a trace and a span of it, -1 where no span has that id."""
        place = np.minimum(np.searchsorted(self._ids, spans), len(self._ids) - 1)
        keys: Array = np.where(self._ids[place] == spans, traces.astype(np.int64) * len(self._ids) + place, _NONE)
        return keys

    def _row(self, keys: Array) -> Array:
        """The first call of each name, -1 where there is none."""
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        rows: Array = np.where(self._keys[place] == keys, self._rows[place], _NONE)
        return rows


class _Stacks:
    """Stacks of methods, by number: each is its caller's and one method more, so that a deep one takes no room."""

    def __init__(self, names: Mapping[int, tuple[str, str]]) -> None:
        self.methods: list[int] = []
        self._names = names
        self._above: list[int] = []
        self._depths: list[int] = []
        self._numbers: dict[tuple[int, int], int] = {}
        # Of each the number of that which is named in its place.
        self.named: list[int] = []

    def below(self, above: int, method: int) -> int:
        """That of a method whose caller's is another, or of one without a caller."""
        new = len(self.methods)
        number = self._numbers.setdefault((above, method), new)
        if number == new:
            depth = 1 if above == _NONE else self._depths[above] + 1
            self.methods.append(method)
            self._above.append(above)
            self._depths.append(depth)
            self.named.append(new if depth <= FRAMES_MOST else self.named[above])
        return number

    def text(self, number: int) -> str:
        """The methods as a folded line has them."""
        frames = []
        while number != _NONE:
            frames.append(_frame(*self._names[self.methods[number]]))
            number = self._above[number]
        return ";".join(reversed(frames))

    def name(self, method: int) -> tuple[str, str]:
        """Service and method."""
        return self._names[method]


@dataclass
class _Times:
    """Of one stack, over calls."""

    frequency: float = 0.0
    inclusive: float = 0.0
    exclusive: float = 0.0
    outside: float = 0.0

    def add(self, other: _Times, weight: float) -> None:
        """That of one call, for as many as it stands for."""
        self.frequency += weight * other.frequency
        self.inclusive += weight * other.inclusive
        # Callees that overlap a little leave less than nothing.
        self.exclusive += weight * max(other.exclusive, 0)
        self.outside += weight * min(max(other.outside, 0), max(other.exclusive, 0))


_Row = dict[str, Any]


@dataclass
class _Group:
    """The calls at one percentile of a method."""

    stacks: _Stacks
    method: int
    p: float
    calls: int = 0
    weight: float = 0.0
    time: float = 0.0
    times: dict[int, _Times] = field(default_factory=dict)

    def add(self, traces: _Traces, call: _Chosen) -> int:
        """The path below one more call; how many calls are on it."""
        root = traces.row(*call.name)
        steps = critical_path.path(traces.calls, root)
        self.calls += 1
        self.weight += call.weight
        self.time += call.weight * int(traces.calls.taken[root])
        for stack, times in _on_path(traces, self.stacks, steps).items():
            self.times.setdefault(stack, _Times()).add(times, call.weight)
        return len(steps)

    def rows(self) -> Iterator[tuple[int, _Row]]:
        """Of `STACKS` without the text; each behind that of its caller."""
        service, method = self.stacks.name(self.method)
        of: _Row = {"service": service, "method": method}
        of |= {"method_id": self.method, "p": self.p, "calls": self.calls, "total_ns": self.time / self.weight}
        return ((stack, of | self._row(stack, times)) for stack, times in self.times.items())

    def _row(self, stack: int, times: _Times) -> _Row:
        on = self.stacks.methods[stack]
        service, method = self.stacks.name(on)
        return {
            **{"on_method_id": on, "on_service": service, "on_method": method},
            "frequency": times.frequency / self.weight,
            "inclusive_ns": times.inclusive / self.weight,
            "exclusive_ns": times.exclusive / self.weight,
            "outside_ns": times.outside / self.weight,
            "share": times.exclusive / self.time if self.time else 0.0,
        }

    def folded(self) -> Iterable[_Row]:
        """Of `STACKS`: what lies deeper than frames are named is the last one's own."""
        found: dict[int, _Row] = {}
        for stack, row in self.rows():
            named = self.stacks.named[stack]
            if named == stack:
                found[stack] = row | {"stack": self.stacks.text(stack)}
                continue
            for name in _OWN:
                found[named][name] += row[name]
            if not found[named]["stack"].endswith(DEEPER):
                found[named]["stack"] += DEEPER
        return found.values()


def _frame(service: str, method: str) -> str:
    """As CRISP names it: what would end a frame is another sign."""
    return f"[{service}] {method}".replace(";", "_")


def _on_path(traces: _Traces, stacks: _Stacks, steps: Sequence[Step]) -> dict[int, _Times]:
    """Of one call what is on its path, by stack."""
    numbers: list[int] = []
    found: dict[int, _Times] = {}
    for step, own in zip(steps, critical_path.exclusive(steps), strict=True):
        above = numbers[step.above] if step.above >= 0 else _NONE
        numbers.append(stacks.below(above, int(traces.methods[step.call])))
        times = found.setdefault(numbers[-1], _Times())
        times.frequency += 1
        times.inclusive += step.taken
        times.exclusive += own
        times.outside += int(traces.outside[step.call])
    return found


def _grouped(traces: _Traces, chosen: Iterable[_Chosen]) -> dict[tuple[int, float], _Group]:
    """By method and percentile: those nearest to their percentiles, until much was looked at."""
    stacks, room = _Stacks(traces.names), STEPS_MOST
    groups: dict[tuple[int, float], _Group] = {}
    for call in chosen:
        if room < 0:
            break
        key = (call.method, call.p)
        room -= groups.setdefault(key, _Group(stacks, *key)).add(traces, call)
    return groups


def _summed(groups: Iterable[_Group]) -> pa.Table:
    """Of `METHODS`: whatever the callers are; those first that take most."""
    found: dict[tuple[int, float, int], _Row] = {}
    for _, row in (each for group in groups for each in group.rows()):
        key = (row["method_id"], row["p"], row["on_method_id"])
        if key not in found:
            found[key] = {name: row[name] for name in METHODS.names}
            continue
        for name in (each.name for each in _TIMES):
            found[key][name] += row[name]
    order = {key[:2]: place for place, key in reversed(list(enumerate(found)))}
    ordered = sorted(found.items(), key=lambda one: (order[one[0][:2]], -one[1]["exclusive_ns"], one[0]))
    return pa.Table.from_pylist([row for _, row in ordered], schema=METHODS)
