"""A report of a small fleet, made once for all tests that look at it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.write import write_report
from scotfree.study.store import Store


@dataclass(frozen=True)
class Made:
    """The page, and what is in it."""

    store: Store
    page: Path
    computed: list[Computed]


@cache
def made_report() -> Made:
    """In a folder of this run's own."""
    folder = Path(mkdtemp(prefix="report-"))
    generate(folder / "fleet", FleetOptions(spans=40_000, methods=120, partitions=4))
    store = Store.open(folder / "fleet")
    page = folder / "report.html"
    return Made(store, page, write_report(Study(store, DuckEngine(store)), page))
