"""The comparison for a terminal, and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from scotfree.study.edges.chance import Interval
from scotfree.study.edges.compare import FASTER, FEWER, NOT_COMPARABLE, SAME, SMALL, Compared, Comparison, Told
from scotfree.study.edges.evidence import CALLS_MIN
from scotfree.study.edges.ranking import Ranked, ranking
from scotfree.study.edges.read import ANY, Count, Edge, Side
from scotfree.study.edges.times import said
from scotfree.study.figures.words import UNNAMED, called, counted, duration
from scotfree.study.plan.text import table

_CAUSES_MAX: Final = 10
_ROWS_MAX: Final = 40
_NAMED_MAX: Final = 3
# As long as before so many times.
_SEVERAL: Final = 2.0
_HEAD: Final = ("edge", "", "calls", "median A", "median B", "growth", "P95 A", "P95 B", "")


def lines(found: Comparison, a: Side, b: Side, names: tuple[str, str]) -> list[str]:
    """Which side is which, what is worse and where it comes from, then every edge."""
    return [
        _side("A", a, names[0]),
        _side("B", b, names[1]),
        *_notes(found, a, b),
        "",
        *_verdict(found),
        *_alone("A", "B", found.only_in_a, a, b),
        *_alone("B", "A", found.only_in_b, b, a),
        *_untold(found),
        "",
        *_table(found),
    ]


def _side(letter: str, side: Side, name: str) -> str:
    return (
        f"{letter}: {name}, {said(side.first_ns)} to {said(side.last_ns)}, {counted(side.calls, 'call')} of "
        f"{counted(len(side.counts), 'edge')}"
    )


def _notes(found: Comparison, a: Side, b: Side) -> Iterator[str]:
    if a.first_ns > b.last_ns:
        yield "A is later than B: if B is not what should be judged, swap them."
    if found.by != "edge":
        yield f"{_why_by(found.by)}: compared by {found.by} {_who(a, b, found.by)}."
    slower = [edge for edge in found.edges if edge.is_worse]
    if len(slower) > 2 and len(slower) * 2 > len(found.edges):
        yield (
            f"{len(slower)} of {counted(len(found.edges), 'edge')} are worse: rather all machines, or the load, "
            "than one service."
        )


def _why_by(by: str) -> str:
    return "No caller is the same on both sides" if by != "method" else "No service is the same on both sides"


def _who(a: Side, b: Side, by: str) -> str:
    """The names that differ."""
    return " beside ".join(
        _some(sorted({edge.server if by == "method" else edge.client for edge in side.counts} - {""})) or UNNAMED
        for side in (a, b)
    ).join("()")


def _verdict(found: Comparison) -> Iterator[str]:
    worse = ranking(found)
    for place, one in enumerate(worse[:_CAUSES_MAX], 1):
        yield f"{place}. {one.says}."
    if len(worse) > _CAUSES_MAX:
        yield f"{counted(len(worse) - _CAUSES_MAX, 'further cause')}: see --json."
    told = [one for edge in found.edges for one in edge.parts if one.verdict != NOT_COMPARABLE]
    if not worse and found.is_worse:
        yield "Single edges are worse, see the table: nothing that they have in common is."
    elif not worse:
        edges = sum(any(one.verdict != NOT_COMPARABLE for one in edge.parts) for edge in found.edges)
        better = sum(one.verdict in (FASTER, FEWER) for one in told)
        also = f"; {better} {'is' if better == 1 else 'are'} better" if better else ""
        yield f"Nothing is worse in {counted(edges, 'edge')}, of {counted(len(told), 'comparison')}{also}."
        yield from _too_few(found)
    small = sum(one.verdict == SMALL for one in told)
    if small:
        yield (
            f"{counted(small, 'difference')} can be told and "
            f"{'is' if small == 1 else 'are'} too little to matter: "
            f"less than {duration(found.least_ns)} or than a tenth (--least TIME)."
        )


def _too_few(found: Comparison) -> Iterator[str]:
    """Edges of so few calls that less than several times would not be told."""
    few = {
        name(edge.edge): max(one.told_from or 0.0 for one in edge.parts)
        for edge in found.edges
        if any(one.verdict == SAME and (one.told_from or 0.0) >= _SEVERAL for one in edge.parts)
    }
    if few:
        least, most = (_times(of(few.values())) for of in (min, max))
        factor = least if least == most else f"{least} to {most}"
        yield (
            f"In {counted(len(few), 'edge')} there are too few calls to tell less than several times "
            f"(about {factor} times as long): {_some(sorted(few, key=lambda edge: -few[edge]))}."
        )


def _times(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"


def _alone(letter: str, other: str, edges: Mapping[Edge, Count], here: Side, there: Side) -> Iterator[str]:
    """Edges of one side only: missing on the other, or too rare for that to mean anything."""
    share = there.calls / max(here.calls, 1)
    rare: list[str] = []
    missing: list[str] = []
    for edge, count in sorted(edges.items(), key=lambda item: -item[1].calls):
        few = min(count.calls, count.calls * share) < CALLS_MIN
        (rare if few else missing).append(f"{name(edge)} ({counted(count.calls, 'call')})")
    if missing:
        yield f"Only in {letter}: {_some(missing)}."
    if rare:
        yield f"In {letter}, and not in {other}, but so rare that this may be chance: {_some(rare)}."


def _untold(found: Comparison) -> Iterator[str]:
    whys: dict[str, list[str]] = defaultdict(list)
    for edge in found.edges:
        if all(one.verdict == NOT_COMPARABLE or one.p is None for one in edge.parts):
            yield_to = whys[edge.parts[-1].why]
            yield_to.append(name(edge.edge))
        else:
            for one in edge.parts:
                if one.verdict == NOT_COMPARABLE:
                    whys[f"{one.part.value}: {one.why}"].append(name(edge.edge))
    for why, names in sorted(whys.items(), key=lambda item: -len(item[1]))[:_ROWS_MAX]:
        yield f"Not comparable: {_some(names)}: {why}."


def _table(found: Comparison) -> list[str]:
    rows = [(edge, one) for edge in found.edges for one in edge.parts if one.verdict != NOT_COMPARABLE]
    # Shares without any failed call say nothing.
    rows = [(edge, one) for edge, one in rows if not one.part.is_share or edge.a.errors + edge.b.errors]
    rows.sort(key=lambda row: (_order(row[1]), row[1].p or 0.0))
    cells = [_row(edge, one) for edge, one in rows[:_ROWS_MAX]]
    more = len(rows) - len(cells)
    return [*table([_HEAD, *cells]), *([f"… and {counted(more, 'row')} more: see --json"] if more else [])]


def _order(one: Told) -> int:
    return 0 if one.is_worse else 1 if one.verdict in (FASTER, FEWER) else 2


def _row(edge: Compared, one: Told) -> tuple[str, ...]:
    calls = f"{one.calls_a:,} / {one.calls_b:,}"
    if one.part.is_share:
        failed = (f"{edge.a.errors:,} failed", f"{edge.b.errors:,} failed")
        return (name(edge.edge), one.part.value, calls, *failed, "", "", "", one.verdict)
    medians, p95s = (
        [_interval(of) for of in pair] for pair in ((one.median_a, one.median_b), (one.p95_a, one.p95_b))
    )
    part = f"{one.part.value} (total)" if one.why else one.part.value
    return (name(edge.edge), part, calls, *medians, _growth(one), *p95s, one.verdict)


def _growth(one: Told) -> str:
    """Of the median."""
    if one.median_a is None or one.median_b is None or one.median_a.value <= 0:
        return ""
    return f"{(one.median_b.value / one.median_a.value - 1) * 100:+.1f} %"


def _interval(of: Interval | None) -> str:
    if of is None:
        return ""
    low, high = ("?" if bound is None else duration(bound) for bound in (of.low, of.high))
    return f"{duration(of.value)} ({low} to {high})"


def name(edge: Edge) -> str:
    """Who calls what."""
    what = edge.method if edge.server in ("", ANY) else called(edge.server, edge.method)
    return what if edge.client in ("", ANY) else f"{edge.client} > {what}"


def _some(names: Sequence[str]) -> str:
    shown, rest = names[:_NAMED_MAX], len(names) - _NAMED_MAX
    return ", ".join(shown) + (f" and {counted(rest, 'other')}" if rest > 0 else "")


def as_json(found: Comparison, a: Side, b: Side) -> dict[str, Any]:
    """All of it; times in ns."""
    return {
        "a": _side_json(a),
        "b": _side_json(b),
        "compared_by": found.by,
        "worse": found.is_worse,
        "ranking": [_ranked_json(one, found) for one in ranking(found)],
        "edges": [_edge_json(one) for one in found.edges],
        "edges_only_in_a": [_alone_json(*one) for one in found.only_in_a.items()],
        "edges_only_in_b": [_alone_json(*one) for one in found.only_in_b.items()],
    }


def _side_json(side: Side) -> dict[str, Any]:
    first, last = said(side.first_ns), said(side.last_ns)
    return {"first": first, "last": last, "calls": side.calls, "edges": len(side.counts)}


def _alone_json(edge: Edge, count: Count) -> dict[str, Any]:
    return edge._asdict() | asdict(count)


def _ranked_json(one: Ranked, found: Comparison) -> dict[str, Any]:
    causes = [
        {
            "part": cause.part.value,
            "calls": cause.scope.kind.value,
            "a": cause.summary.a,
            "b": cause.summary.b,
            "calls_a": cause.summary.calls_a,
            "calls_b": cause.summary.calls_b,
            "p": cause.summary.p,
            "edges": [found.edges[place].edge._asdict() for place in cause.scope.edges],
        }
        for cause in one.causes
    ]
    names = list(one.names)
    return {"kind": one.thing, "names": names, "added_ns": one.added_ns, "says": one.says, "causes": causes}


def _edge_json(one: Compared) -> dict[str, Any]:
    return one.edge._asdict() | {
        "calls_a": one.a.calls,
        "calls_b": one.b.calls,
        "errors_a": one.a.errors,
        "errors_b": one.b.errors,
        "client_machines": one.client_machines,
        "server_machines": one.server_machines,
        "parts": {told.part.value: _told_json(told) for told in one.parts},
    }


def _told_json(told: Told) -> dict[str, Any]:
    row = asdict(told)
    del row["part"]
    return row
