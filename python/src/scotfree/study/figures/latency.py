"""F2: how long the calls of each method take."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs, words
from scotfree.study.figures.per_method import Published, Quantity, extreme, name_of, values, with_finding
from scotfree.study.figures.result import Coverage, Figure, Result

_MS: Final = 1e6
TOTAL: Final = Quantity("total", "completion time", "ns", words.duration, inputs.CALLS)
# Section 2.3, F2b.
_PUBLISHED: Final = [
    Published(0.01, 0.90, 657_000, "<="),
    Published(0.50, 0.10, 10.7 * _MS, ">="),
    Published(0.99, 0.005, 1 * _MS, ">="),
    Published(0.99, 0.50, 225 * _MS, ">="),
    Published(0.01, 0.95, 166 * _MS, ">="),
    Published(0.99, 0.95, 5_000 * _MS, ">="),
]


def compute(study: Study) -> Result:
    """The eight quantiles per method in the order of the median, and their distribution over methods."""
    made = with_finding(study, TOTAL, _PUBLISHED)
    if made.coverage is not Coverage.ABSENT:
        made.findings.append(_spread(made.tables["methods"]))
    return made


def _spread(found: pa.Table) -> str:
    """The method whose tail is farthest from its median."""
    ratio = values(found, "p99") / np.maximum(values(found, "p50"), 1)
    worst = extreme(found.append_column("ratio", pa.array(ratio)), "ratio")
    return (
        f"The least predictable is {name_of(worst)}: its P99 of {words.duration(worst['p99'])} is"
        f" {words.number(worst['ratio'])} times its median."
    )


FIGURES = (Figure("F2", "Completion time per method", "2.3", compute),)
