"""Where the calls are counted: DuckDB in this process, or Spark on a cluster.

What is a group-by, a join or a quantile is an Ibis expression over `Engine.table(name)`. What is not (trees,
sketches, what-if) is a kernel: a function from one partition's columns to a small table, whose results add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

Kernel = Callable[[pa.Table], pa.Table]


def column(p: float) -> str:
    """The name of a quantile's column: p01 to p99."""
    return f"p{round(p * 100):02}"


class Engine(Protocol):
    """What the analysis needs of an engine."""

    name: str
    # Whether it runs in this process, so that rows need not travel to be sorted by it.
    is_local: bool

    def table(self, name: str) -> Any:
        """An Ibis table: `span`, `metric`, `profile`, `methods`, or what was registered."""

    def register(self, name: str, table: pa.Table) -> Any:
        """Makes a small table known under a name; an Ibis table of it."""

    def arrow(self, expression: Any) -> pa.Table:
        """What an Ibis expression gives."""

    def map_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> pa.Table:
        """The kernel's results over all partitions, one behind the other. Each holds its traces whole."""

    def iter_partitions(self, columns: Sequence[str], kernel: Kernel, result: pa.Schema) -> Iterator[pa.Table]:
        """The same, partition by partition as they come, in any order: for results that are added up."""
