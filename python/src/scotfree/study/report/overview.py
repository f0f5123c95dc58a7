"""What a page says before its figures: what was looked at, what stands out, what next, all methods and edges."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import edges, path_times
from scotfree.study.analysis.extent import Extent, extent
from scotfree.study.analysis.memo import once
from scotfree.study.analysis.study import Study
from scotfree.study.figures import findings
from scotfree.study.figures.overview import P95_MIN, P99_MIN, UNKNOWN_CLIENT, Group, Said, groups
from scotfree.study.figures.words import UNNAMED, counted, lasting, listed, size
from scotfree.study.ingest import intake, names, opening
from scotfree.study.report import on_path
from scotfree.study.report.on_path import OnPath
from scotfree.study.store import Manifest, Store

# Rows of a table in the page; the Parquet beside it has all.
ROWS_MAX: Final = 50
_NAMED_MAX: Final = 3
# Of an input: nothing behind that place was read.
_UNREAD: Final = (opening.ENDS_EARLY, opening.DAMAGED, intake.CUT)
_NO_PLAN: Final = (
    f"A plan needs a method with {schema.SAMPLES_MIN} successful calls whose total is known, and here is none: "
    "with more traces, and client spans in them, scot plan says which remedy would help."
)


@dataclass(frozen=True)
class Step:
    """What to do next: a command as it can be typed, and what it does."""

    command: str
    does: str


@dataclass(frozen=True)
class Listed:
    """The first rows of a table, and how many others there are."""

    rows: Sequence[dict[str, Any]] = ()
    others: int = 0
    # Methods or edges of fewer calls than a row needs.
    few: int = 0


@dataclass(frozen=True)
class Overview:
    """What the page says before its figures; empty for a page of figures alone."""

    # Name and sentence.
    scope: Sequence[tuple[str, str]] = ()
    groups: Sequence[Group] = ()
    steps: Sequence[Step] = ()
    methods: Listed = field(default_factory=Listed)
    edges: Listed = field(default_factory=Listed)
    paths: Sequence[OnPath] = ()
    # Whole, for the Parquet beside the page.
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    # Why a plan is not among the steps; empty if it is.
    no_plan: str = ""


@once
def overview(study: Study) -> Overview:
    """Of one study."""
    paths = path_times.of_entries(study)
    tables = {
        "methods": edges.methods(study),
        "edges": edges.edges(study),
        "critical_path": paths.methods,
        "critical_path_stacks": paths.stacks,
    }
    said = [Said(one.sentence, figure=one.number) for one in findings.top(study)]
    can_plan = _can_plan(study)
    return Overview(
        scope=_scope(study.store, extent(study), study.counts().num_rows),
        groups=[*groups(study), *([Group("What the figures say", said)] if said else [])],
        steps=_steps(study.store.folder, can_plan),
        methods=_listed([_method(row) for row in tables["methods"].to_pylist()], study.counts().num_rows),
        edges=_listed([_edge(row) for row in tables["edges"].to_pylist()], edges.edges_seen(study)),
        paths=on_path.entries(paths.methods),
        tables=tables,
        no_plan="" if can_plan else _NO_PLAN,
    )


def _listed(rows: list[dict[str, Any]], seen: int) -> Listed:
    return Listed(rows[:ROWS_MAX], max(0, len(rows) - ROWS_MAX), seen - len(rows))


def _method(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, **_marks(row), "name": row["method"] or UNNAMED, "of": row["service"] or UNNAMED}


def _edge(row: dict[str, Any]) -> dict[str, Any]:
    of = f"{row['client_service'] or UNKNOWN_CLIENT} \u2192 {row['service'] or UNNAMED}"
    return {**row, **_marks(row), "name": row["method"] or UNNAMED, "of": of}


def _marks(row: dict[str, Any]) -> dict[str, bool]:
    """Whether so many calls have a P95 and a P99 that are not just the slowest call."""
    return {"has_p95": row["samples"] >= P95_MIN, "has_p99": row["samples"] >= P99_MIN}


def _scope(store: Store, size_: Extent, methods: int) -> list[tuple[str, str]]:
    """Files, time, calls, and what became of the records."""
    manifest = store.manifest
    of = f"{counted(methods, 'method')}{_merged_names(store)}"
    calls = f"{counted(size_.spans, 'call')} of {of} in {counted(size_.traces, 'trace')}"
    found = [("Files", _files(manifest)), ("Time", _time(size_))]
    between = "between" if size_.services > 1 else "of"
    found.append(("Calls", f"{calls}, {between} {counted(size_.services, 'service')}"))
    return [*found, ("Records", f"{_records(manifest)}{_unread(store)}")]


def _merged_names(store: Store) -> str:
    """How many names of methods were written in two ways."""
    count = store.noted(names.TWICE)
    return f" ({counted(count, 'name')} with and without a slash before it counted once)" if count else ""


def _files(manifest: Manifest) -> str:
    inputs = manifest.inputs
    if not inputs:
        return "none"
    forms = ", ".join(sorted({one.form for one in inputs}))
    names = [Path(one.path).name for one in inputs[:_NAMED_MAX]]
    more = f" and {counted(len(inputs) - _NAMED_MAX, 'other')}" if len(inputs) > _NAMED_MAX else ""
    # A fleet that was drawn is no file.
    bytes_ = sum(one.bytes for one in inputs)
    of = f"{forms}; {size(bytes_)}" if bytes_ else forms
    return f"{counted(len(inputs), 'file')} ({of}): {', '.join(names)}{more}"


def _time(size_: Extent) -> str:
    if size_.first_ns is None or size_.last_ns is None:
        return "no call"
    first, last = (_moment(ns) for ns in (size_.first_ns, size_.last_ns))
    if first[:10] == last[:10]:
        last = last[11:]
    return f"{first} to {last} UTC ({lasting(size_.last_ns - size_.first_ns)}, by when calls began)"


def _moment(ns: int) -> str:
    try:
        return dt.datetime.fromtimestamp(ns // 10**9, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        # No date that has a name.
        return f"second {ns // 10**9:,}"


def _records(manifest: Manifest) -> str:
    if not manifest.records_in:
        return "none: the store came with its calls"
    kinds = f"{manifest.merged:,} merged into the calls, {manifest.internal:,} of work inside services"
    return f"{manifest.records_in:,} of sides of calls: {kinds}, {manifest.dropped:,} dropped"


def _unread(store: Store) -> str:
    """Inputs of which nobody knows how much is missing: a count of what was dropped does not say it."""
    rows = [row for row in store.read("trouble").to_pylist() if row["reason"] in _UNREAD]
    inputs = [store.manifest.inputs[number].path for number in sorted({row["input"] for row in rows})]
    if not inputs:
        return ""
    names_ = [Path(path).name for path in inputs]
    if len(names_) > _NAMED_MAX:
        names_ = [*names_[:_NAMED_MAX], counted(len(inputs) - _NAMED_MAX, "other")]
    ends = "ends" if len(inputs) == 1 else "end"
    return f"; {listed(names_)} {ends} early or damaged: how much followed is not known"


def _can_plan(study: Study) -> bool:
    """Whether any method has the calls that a plan needs: it refuses the others."""
    return any(count >= schema.SAMPLES_MIN for count in study.counts()["known_total"].to_pylist())


def _steps(store: Path, can_plan: bool) -> list[Step]:
    """The commands that go on from here."""
    name = shlex.quote(str(store))
    plan = Step(f"scot plan {name}", "which remedy would help, and by how much")
    return [
        *([plan] if can_plan else []),
        Step(f"scot study serve {name}", "services, methods and single calls, in a browser"),
        Step(
            f"scot study compare {name} after.store",
            "what a change did; after.store by: scot study report NEW-TRACES -o after.html",
        ),
    ]
