"""F21: what a call of each method costs in processor cycles, and whether size or latency tells it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs, words
from scotfree.study.figures.per_method import Published, Quantity, nearest_rank, values, with_finding
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result

Array = npt.NDArray[Any]
# The paper's figure too has fewer methods than its others: not all calls say their cycles (section 4.2).
_CYCLES: Final = Quantity(
    "cpu_cycles", "normalized cycles per call", "cycles", words.number, inputs.CYCLES, share=0.0
)
# "Cheapest 10 % of calls" is read as each method's P10, "most expensive 10 %" as its P90.
_PUBLISHED: Final = [
    Published(0.10, 0.10, 0.017),
    Published(0.10, 0.90, 0.020),
    Published(0.90, 0.10, 0.020),
    Published(0.90, 0.90, 0.160),
]
_AGAINST: Final = {"total": "completion time", "req_bytes": "request size", "resp_bytes": "response size"}
_METHODS_MIN: Final = 3


def compute(study: Study) -> Result:
    """Normalized cycles per method. Table `rank_correlations` beside `methods` and `cdf`."""
    made = with_finding(study, _CYCLES, _PUBLISHED)
    if made.coverage is Coverage.ABSENT:
        return made
    found = made.tables["methods"]
    correlations = _correlations(study, found)
    made.tables["rank_correlations"] = correlations
    made.comparisons += [*_tails(found), *_compared(correlations)]
    made.findings += _strongest(correlations)
    made.notes.append(
        "The paper does not give the unit of its normalized cycles: compare spreads and ratios, not values."
    )
    return made


def _tails(found: pa.Table) -> list[Comparison]:
    """P99 against the median of the method in the middle; P99 against P1 of the cheapest 1 % of methods."""
    tail = values(found, "p99") / values(found, "p50")
    cheapest = max(1, round(found.num_rows * 0.01))
    spread = float((values(found, "p99") / values(found, "p01"))[:cheapest].max())
    middle = nearest_rank(tail, 0.5)
    return [
        Comparison("P99 by median of the method in the middle", 10, middle, "ratio", ">="),
        Comparison("P99 by median of the method in the middle", 100, middle, "ratio", "<="),
        Comparison("P99 by P1, at most, of the cheapest 1 % of methods", 2, spread, "ratio", "<"),
    ]


def _correlations(study: Study, found: pa.Table) -> pa.Table:
    """Columns quantity, methods (of which both are known), spearman; a row where there are enough methods."""
    rows = []
    for name, noun in _AGAINST.items():
        methods, rho = _against(found, study.quantiles(name))
        if methods >= _METHODS_MIN:
            rows.append({"quantity": noun, "methods": methods, "spearman": rho})
    kinds = pa.schema([("quantity", pa.string()), ("methods", pa.int64()), ("spearman", pa.float64())])
    return pa.Table.from_pylist(rows, schema=kinds)


def _against(found: pa.Table, other: pa.Table) -> tuple[int, float]:
    """Of the methods in both: how many, and the rank correlation of their medians."""
    _, left, right = np.intersect1d(values(found, "method_id"), values(other, "method_id"), return_indices=True)
    if len(left) < _METHODS_MIN:
        return len(left), 0.0
    return len(left), spearman(values(found, "p50")[left], values(other, "p50")[right])


def spearman(x: Array, y: Array) -> float:
    """Rank correlation, equal values sharing their mean rank; 0 where one does not vary."""
    of_x, of_y = _ranks(x), _ranks(y)
    if np.ptp(of_x) == 0 or np.ptp(of_y) == 0:
        return 0.0
    return float(np.corrcoef(of_x, of_y)[0, 1])


def _ranks(of: Array) -> Array:
    _, inverse, counts = np.unique(of, return_inverse=True, return_counts=True)
    ends: Array = np.cumsum(counts)
    ranks: Array = (ends - (counts - 1) / 2)[inverse]
    return ranks


def _compared(correlations: pa.Table) -> list[Comparison]:
    """The paper finds none, without a number."""
    return [
        Comparison(f"rank correlation of cycles with {row['quantity']}", 0.0, row["spearman"], "ratio", "about")
        for row in correlations.to_pylist()
    ]


def _strongest(correlations: pa.Table) -> list[str]:
    rows = correlations.to_pylist()
    if not rows:
        return []
    most = max(rows, key=lambda row: abs(row["spearman"]))
    tells = "tells little of" if abs(most["spearman"]) < 0.3 else "goes with"
    return [
        f"What tells most of a method's cycles is {most['quantity']}, which {tells} them (rank correlation"
        f" {most['spearman']:+.2f} over {most['methods']:,} methods)."
    ]


FIGURES = (Figure("F21", "Cycles per call and method", "4.2", compute),)
