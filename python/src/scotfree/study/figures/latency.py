"""F2: how long the calls of each method take."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent

_MS = 1_000_000
# Quantile, share of methods, the published value in ns (section 2.2; F2b of the specification).
_PUBLISHED = [
    (0.01, 0.90, 657_000, "<="),
    (0.50, 0.10, 10.7 * _MS, ">="),
    (0.99, 0.005, 1 * _MS, ">="),
    (0.99, 0.50, 225 * _MS, ">="),
    (0.01, 0.95, 166 * _MS, ">="),
    (0.99, 0.95, 5_000 * _MS, ">="),
]


def over_methods(quantiles: pa.Table, p: float, share: float) -> float | None:
    """The value that a share of methods does not exceed, of their p-quantiles: nearest rank, each method once."""
    values = np.sort(quantiles[column(p)].to_numpy(zero_copy_only=False))
    if len(values) == 0:
        return None
    return float(values[max(0, int(np.ceil(share * len(values))) - 1)])


def compute(study: Study) -> Result:
    """The eight quantiles per method in the order of the median, and their distribution over methods."""
    found = study.quantiles("total")
    if found.num_rows == 0:
        return absent(f"{schema.SAMPLES_MIN} successful calls of one method, as their client saw them")
    comparisons = [
        Comparison(
            f"P{round(p * 100)} that {share:.1%} of methods do not exceed",
            published,
            over_methods(found, p, share),
            "ns",
            relation,
        )
        for p, share, published, relation in _PUBLISHED
    ]
    slowest = found.slice(found.num_rows - 1).to_pylist()[0]
    median = over_methods(found, 0.5, 0.5) or 0.0
    worst = f"{slowest['service']} {slowest['method']} with {slowest['p50'] / _MS:.3g} ms"
    findings = [
        f"Half of {found.num_rows} methods have a median of {median / _MS:.3g} ms or less; the slowest is {worst}."
    ]
    return Result(Coverage.COMPLETE, {"methods": found}, findings=findings, comparisons=comparisons)


FIGURE = Figure("F2", "Completion time per method", "2.2", compute)
