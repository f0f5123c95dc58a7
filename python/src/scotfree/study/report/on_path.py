"""What is shown of critical paths: of each method what its calls wait for at P50, P95 and P99, the most first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from scotfree.study.analysis.path_times import PS
from scotfree.study.engine import column
from scotfree.study.figures.words import UNNAMED

# Rows of a method; what else is on its path is one more.
ROWS_MOST: Final = 6


@dataclass(frozen=True)
class Part:
    """What a method is of a path at one percentile."""

    share: float
    # A call's, in the mean.
    ns: float
    # Of it outside the handler, where both sides' records are known.
    outside_ns: float


@dataclass(frozen=True)
class At:
    """The calls at a percentile: how many, and how long they take."""

    calls: int
    ns: float


@dataclass(frozen=True)
class Row:
    """A method on the path, by the percentiles at which it is there."""

    service: str
    method: str
    parts: Mapping[str, Part]


@dataclass(frozen=True)
class OnPath:
    """The path below the calls of a method."""

    service: str
    method: str
    at: Mapping[str, At]
    rows: Sequence[Row] = field(default_factory=tuple)
    # How many other methods are on it, and what they are together.
    others: int = 0
    rest: Mapping[str, Part] = field(default_factory=dict)

    @property
    def name(self) -> tuple[str, str]:
        """What is written, and smaller below it."""
        return self.method or UNNAMED, self.service or UNNAMED


def entries(methods: pa.Table) -> list[OnPath]:
    """Of rows of `path_times.METHODS`, each method they are of."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in methods.to_pylist():
        found.setdefault(row["method_id"], []).append(row)
    return [_on_path(rows) for rows in found.values()]


def _on_path(rows: list[dict[str, Any]]) -> OnPath:
    parts: dict[tuple[str, str], dict[str, Part]] = {}
    for row in rows:
        named = (row["on_service"], row["on_method"])
        parts.setdefault(named, {})[column(row["p"])] = Part(row["share"], row["exclusive_ns"], row["outside_ns"])
    ordered = sorted(parts, key=lambda named: (-max(part.share for part in parts[named].values()), named))
    hidden = [parts[named] for named in ordered[ROWS_MOST:]]
    return OnPath(
        rows[0]["service"],
        rows[0]["method"],
        {column(row["p"]): At(row["calls"], row["total_ns"]) for row in rows},
        [Row(*named, parts[named]) for named in ordered[:ROWS_MOST]],
        len(hidden),
        {name: _together(hidden, name) for name in map(column, PS) if hidden},
    )


def _together(hidden: list[dict[str, Part]], name: str) -> Part:
    there = [each[name] for each in hidden if name in each]
    return Part(*(sum(getattr(part, what) for part in there) for what in ("share", "ns", "outside_ns")))
