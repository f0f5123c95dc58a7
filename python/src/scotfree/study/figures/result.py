"""What a figure is: tables of some thousand rows at most, sentences, the published values beside the user's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from scotfree.study.analysis.study import Study


class Coverage(StrEnum):
    """How much of a figure the inputs allow."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    ABSENT = "absent"


@dataclass(frozen=True)
class Row:
    """A published value beside one row of a chart, by the row's name in the figure's tables."""

    name: str
    # Of several values that the row has: the one that is meant.
    series: str = ""


@dataclass(frozen=True)
class OverMethods:
    """A published point of a distribution: this share of methods has a p-quantile that does not exceed it."""

    # As `Study.quantiles` knows it.
    quantity: str
    p: float
    share: float


@dataclass(frozen=True)
class MostPopular:
    """A published value of so many methods, the most popular ones together."""

    methods: int


Place = Row | OverMethods | MostPopular


@dataclass(frozen=True)
class Comparison:
    """One published value beside the user's; None where one side has none."""

    what: str
    published: float | None
    measured: float | None
    # ns, bytes, share (0 to 1), ratio, calls, cycles, 1/year: the report formats by it.
    unit: str
    # How the published value is meant, if not as an equal: "<=", ">=", "about".
    relation: str = "="
    # Where charts mark the published value; None: nowhere. The words above are for people alone.
    place: Place | None = None
    # Whether the published value is no number of the text but was read off a picture.
    is_read_off: bool = False


@dataclass
class Result:
    """A figure, computed."""

    coverage: Coverage
    # By name: what is drawn, and what lies as Parquet beside the report.
    tables: dict[str, pa.Table] = field(default_factory=dict)
    # The inputs that were missing, named as a user would add them.
    missing: list[str] = field(default_factory=list)
    # Whole sentences, the most important first.
    findings: list[str] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    # How it was counted, where the paper leaves a choice.
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Figure:
    """A figure of the paper: F1 to F23, T1, T2, or a paragraph's number."""

    number: str
    title: str
    # The paper's section.
    section: str
    compute: Callable[[Study], Result]


def absent(*missing: str) -> Result:
    """No figure, for these inputs are not there."""
    return Result(Coverage.ABSENT, missing=list(missing))
