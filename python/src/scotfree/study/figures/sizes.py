"""F6, F7: how large requests and responses are, and which of both is larger."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs, words
from scotfree.study.figures.per_method import Published, Quantity, finding, result, values, with_finding
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result

_REQUESTS: Final = Quantity("req_bytes", "request size", "bytes", words.size, inputs.SIZES)
_RESPONSES: Final = Quantity("resp_bytes", "response size", "bytes", words.size, inputs.SIZES)
_RATIO: Final = Quantity("size_ratio", "response by request", "ratio", words.number, inputs.SIZES)
# Section 2.5. P90 and P99 are read as those of the method in the middle, as the medians are.
_REQUESTS_PUBLISHED: Final = [
    Published(0.50, 0.50, 1530, "<="),
    Published(0.90, 0.50, 11_800),
    Published(0.99, 0.50, 196_000),
]
_RESPONSES_PUBLISHED: Final = [
    Published(0.50, 0.10, 188, "<="),
    Published(0.50, 0.50, 315, "<="),
    Published(0.90, 0.50, 10_000),
    Published(0.99, 0.50, 563_000),
]
_SMALLEST_BYTES: Final = 64
_CONTRADICTION: Final = (
    "The paper also says that the smallest 10 % of methods have median requests under 2.03 kB, which contradicts"
    " half of them being under 1.53 kB: it is not compared with."
)


def sizes(study: Study) -> Result:
    """F6: tables `requests_methods`, `requests_cdf`, `responses_methods`, `responses_cdf`."""
    parts = [
        result(study, _REQUESTS, _REQUESTS_PUBLISHED, prefix="requests_"),
        result(study, _RESPONSES, _RESPONSES_PUBLISHED, prefix="responses_"),
    ]
    made = Result(_both([part.coverage for part in parts]))
    for part, quantity, prefix in zip(parts, (_REQUESTS, _RESPONSES), ("requests_", "responses_"), strict=True):
        made.tables |= part.tables
        # Both halves want the same attributes: said once.
        made.missing += [one for one in part.missing if one not in made.missing]
        made.comparisons += part.comparisons
        made.notes += [f"{quantity.noun.capitalize()}: {note}" for note in part.notes]
        if part.tables:
            found = part.tables[f"{prefix}methods"]
            made.findings.append(finding(quantity, found))
            made.comparisons.append(_smallest(quantity, found))
    made.notes.append(_CONTRADICTION)
    return made


def _both(coverages: list[Coverage]) -> Coverage:
    """Of two halves: one that is absent leaves a part."""
    return coverages[0] if coverages[0] is coverages[1] else Coverage.PARTIAL


def _smallest(quantity: Quantity, found: pa.Table) -> Comparison:
    smallest = float(values(found, "p01").min())
    return Comparison(f"{quantity.noun}: lowest P1 of a method", _SMALLEST_BYTES, smallest, "bytes", ">=")


def ratios(study: Study) -> Result:
    """F7: above 1 a call reads, below 1 it writes."""
    made = with_finding(study, _RATIO, [])
    if made.coverage is not Coverage.ABSENT:
        medians = values(made.tables["methods"], "p50")
        writes, reads = float(np.mean(medians < 1)), float(np.mean(medians > 1))
        many = words.counted(len(medians), "method")
        # "Most methods": more than half.
        made.comparisons.append(Comparison("methods with a median ratio below 1", 0.5, writes, "share", ">"))
        made.findings.insert(
            0,
            f"In the median {words.percent(writes)} of {many} answer with less"
            f" than they are asked with (they write), {words.percent(reads)} with more (they read).",
        )
    return made


FIGURES = (
    Figure("F6", "Request and response size per method", "2.5", sizes),
    Figure("F7", "Response size by request size per method", "2.5", ratios),
)
