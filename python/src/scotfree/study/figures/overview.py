"""What a report says first: the edges whose calls wait longest, the methods that are slow, the errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis import edges
from scotfree.study.analysis.answered import SERVER, answered
from scotfree.study.analysis.edges import Interval
from scotfree.study.analysis.shape import Shape, shape
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import volumes
from scotfree.study.figures import inputs
from scotfree.study.figures.words import called, counted, duration, listed, percent, span
from scotfree.study.ingest.status import HTTP

# Sentences of each kind.
EDGES_MOST: Final = 3
BY_TIME_MOST: Final = 2
BY_TAIL_MOST: Final = 2
ERRORS_MOST: Final = 2
DEVICES_MOST: Final = 3
# Of fewer calls the P95 is the slowest one, and so is the P99.
P95_MIN: Final = 20
P99_MIN: Final = 100
UNKNOWN_CLIENT: Final = "an unknown client"

Row = dict[str, Any]


@dataclass(frozen=True)
class Said:
    """A sentence."""

    sentence: str
    # Whom it is about, before it: an edge or a method.
    name: str = ""
    # The number of the figure that shows it.
    figure: str = ""


@dataclass(frozen=True)
class Group:
    """Sentences of one kind, under its name."""

    title: str
    sentences: Sequence[Said]


def groups(study: Study) -> list[Group]:
    """What stands out; each kind says so if there is nothing to say."""
    return [
        Group("Waiting outside the handler", _waits(study)),
        Group("Slow methods", _slow(study)),
        Group("Errors", _errors(study)),
        *([Group("How calls are made", made)] if (made := _made(study)) else []),
        *([Group("Answered by devices", devices)] if (devices := _devices(study)) else []),
    ]


def _waits(study: Study) -> list[Said]:
    rows = edges.edges(study).slice(0, EDGES_MOST).to_pylist()
    if not rows:
        few = f"no edge has {edges.CALLS_MIN} successful calls with the records of both sides"
        return [Said(f"What calls wait outside the handler is not known: {few}. Add {inputs.SERVER_SPANS}.")]
    intervals = edges.edge_intervals(study, rows, 0.5)
    return [Said(_wait(row, interval), edge_name(row)) for row, interval in zip(rows, intervals, strict=True)]


def edge_name(row: Row) -> str:
    """Who calls what."""
    return f"{row['client_service'] or UNKNOWN_CLIENT} \u2192 {called(row['service'], row['method'])}"


def _wait(row: Row, interval: Interval) -> str:
    said = f"half of the calls wait {duration(row['p50_ns'])} outside the handler"
    said += f" ({_rests(interval, row['samples'], duration)}){_one_in_twenty(row)}"
    return f"{said}; {percent(row['share'])} of all time."


def _one_in_twenty(row: Row) -> str:
    return f", one in twenty {duration(row['p95_ns'])}" if row["samples"] >= P95_MIN else ""


def _rests(interval: Interval, calls: int, say: Callable[[float], str]) -> str:
    """What a number rests on: its interval, or why there is none, and how many calls."""
    count = counted(calls, "call")
    if interval.low is not None and interval.high is not None:
        return f"{span(say(interval.low), say(interval.high))}, {count}"
    of = "" if interval.traces >= calls else f" of {counted(interval.traces, 'trace')}"
    return f"{count}{of}, too few for an interval"


def _slow(study: Study) -> list[Said]:
    """Those that most time goes into; then those whose tail is longest."""
    known = [row for row in edges.methods(study).to_pylist() if row["samples"] >= edges.CALLS_MIN]
    if not known:
        return [Said(f"No method has {edges.CALLS_MIN} successful calls that say how long they took.")]
    by_time = known[:BY_TIME_MOST]
    # A P95 of few calls is the slowest of them: it speaks only where there is no other.
    many = [row for row in known if row["samples"] >= P95_MIN] or known
    rest = [row for row in many if row not in by_time]
    by_tail = sorted(rest, key=lambda row: -row["p95_ns"])[:BY_TAIL_MOST]
    middles = edges.method_intervals(study, by_time, 0.5)
    said = [Said(_by_time(row, middle), _name(row)) for row, middle in zip(by_time, middles, strict=True)]
    ends = edges.method_intervals(study, by_tail, 0.95)
    return said + [Said(_by_tail(row, end), _name(row)) for row, end in zip(by_tail, ends, strict=True)]


def _by_time(row: Row, interval: Interval) -> str:
    """How much of all time it takes, and how long its calls are."""
    said = f"{percent(row['share'])} of all time; half of the calls take {duration(row['p50_ns'])}"
    said += f" ({_rests(interval, row['samples'], duration)}){_one_in_twenty(row)}"
    if row["tax"] is not None:
        said += f"; {percent(row['tax'])} of its time lies outside the handler"
    return f"{said}."


def _by_tail(row: Row, interval: Interval) -> str:
    """How slow its slowest calls are."""
    if row["samples"] < P95_MIN:
        return f"the slowest of {counted(row['samples'], 'call')} takes {duration(row['p99_ns'])}."
    said = f"a slow tail: one call in twenty takes {duration(row['p95_ns'])}"
    said += f" ({_rests(interval, row['samples'], duration)})"
    if row["samples"] >= P99_MIN:
        said += f", one in a hundred {duration(row['p99_ns'])}"
    return f"{said}."


def _name(row: Row) -> str:
    """A method, and that no client's record says how long its calls took, where it is so."""
    name = called(row["service"], row["method"])
    return name if row["is_client"] else f"{name} (as its server saw it)"


def _errors(study: Study) -> list[Said]:
    rows = edges.methods(study).filter(pc.greater(edges.methods(study)["errors"], 0)).to_pylist()
    worst = _worst(rows)
    intervals = edges.error_intervals(study, worst)
    said = [
        Said(_error(study, row, interval), called(row["service"], row["method"]))
        for row, interval in zip(worst, intervals, strict=True)
    ]
    if not said:
        said.append(Said("No call is recorded as failed." if _failed(study) == 0 else _rare(study)))
    return [*said, *_failed_work(study)]


def _failed_work(study: Study) -> list[Said]:
    """What failed inside services, whether or not the call around it did."""
    count = study.store.noted(schema.FAILED_WORK)
    return (
        [Said(f"Work inside services, which is no call, failed in {counted(count, 'record')}.")] if count else []
    )


def _worst(rows: list[Row]) -> list[Row]:
    """The method with most errors, then the one of which the greatest part fails."""
    if not rows:
        return []
    most = max(rows, key=lambda row: (row["errors"], -row["method_id"]))
    # One error of five calls is chance.
    rest = [row for row in rows if row is not most and row["errors"] >= edges.CALLS_MIN]
    return [most, *sorted(rest, key=lambda row: (-row["error_share"], row["method_id"]))[: ERRORS_MOST - 1]]


def _error(study: Study, row: Row, interval: Interval) -> str:
    rests = _rests(interval, row["calls"], percent)
    status, count = _commonest(study, row["method_id"])
    most = "all" if count == row["errors"] else f"{count:,} of them"
    fail = f"{percent(row['error_share'])} of the calls fail ({rests}), {row['errors']:,} in all"
    return f"{fail}; {most} as {_spoken(status)}."


def _spoken(status: str) -> str:
    """The name that calls of gRPC and of HTTP count under, and the status that HTTP has for it."""
    http = next((code for code, name in HTTP.items() if name == status), None)
    return f"{status} (in HTTP {http})" if http else status


def _commonest(study: Study, method_id: int) -> tuple[str, int]:
    """The status that most of a method's failed calls end with, and how many do."""
    found = _failures(study)
    own = found.filter(pc.equal(found["method_id"], method_id)).group_by("status").aggregate([("samples", "sum")])
    first = max(own.to_pylist(), key=lambda row: (row["samples_sum"], row["status"]))
    return str(first["status"]), int(first["samples_sum"])


def _failures(study: Study) -> pa.Table:
    table = volumes(study)
    return table.filter(pc.not_equal(table["status"], schema.STATUS_OK))


def _failed(study: Study) -> int:
    return int(sum(_failures(study)["samples"].to_pylist()))


def _rare(study: Study) -> str:
    """Errors of methods of few calls only."""
    return f"{counted(_failed(study), 'call')} failed, all of methods with fewer than {edges.CALLS_MIN} calls."


def _made(study: Study) -> list[Said]:
    """Retries, calls in numbers, and calls within one machine; what there is none of is not said."""
    found = shape(study)
    said = []
    if (row := found.retried) is not None:
        said.append(Said(_retried(row, round(found.retries - row["retries"])), edge_name(row)))
    if (row := found.fanned) is not None:
        mean = row["calls"] / row["callers"]
        of = f"{mean:.3g} on average ({counted(row['callers'], 'caller')})"
        says = f"one call makes up to {row['most']:,} of these, {of}."
        said.append(Said(says, edge_name(row)))
    if found.placed >= edges.CALLS_MIN and found.within:
        said.append(Said(_placed(found)))
    return said


def _retried(row: Row, elsewhere: int) -> str:
    """How often a failed call is followed by another, and how often that would be so anyway."""
    more = f"; {elsewhere:,} more elsewhere" if elsewhere else ""
    failed = counted(round(row["failed"]), "failed call")
    return (
        f"after {row['again']:,.0f} of {failed} the same caller calls again, which after "
        f"calls that succeed would be {row['usual']:,.0f}: some {row['retries']:,.0f} retries in "
        f"{counted(row['calls'], 'call')}{more}."
    )


def _devices(study: Study) -> list[Said]:
    """Of methods whose calls devices answer, how many each answers, and how long these take."""
    rows = answered(study).to_pylist()
    methods = list(dict.fromkeys(row["method_id"] for row in rows))[:DEVICES_MOST]
    return [_shared([row for row in rows if row["method_id"] == one]) for one in methods]


def _shared(rows: list[Row]) -> Said:
    whole = sum(row["calls"] for row in rows)
    parts = [
        f"{percent(row['calls'] / whole)} by {_answerer(row['answered_by'])} "
        f"({duration(row['mean_ns'])} on average)"
        for row in rows
    ]
    count = counted(sum(row["samples"] for row in rows), "call")
    return Said(f"of {count} {listed(parts)}.", called(rows[0]["service"], rows[0]["method"]))


def _answerer(name: str) -> str:
    return "the server" if name == SERVER else name


def _placed(found: Shape) -> str:
    share = percent(found.within / found.placed)
    said = f"Of {counted(found.placed, 'call')} that name both machines {share} stay on one"
    if found.within_ns is not None and found.across_ns is not None:
        said += f": half of these take {duration(found.within_ns)}, of the others {duration(found.across_ns)}"
    return f"{said}."
