"""F11, F12, F13: the latency tax of each method, and its parts: network with stack, and queues."""

from __future__ import annotations

from typing import Final

import numpy as np

from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs, words
from scotfree.study.figures.per_method import Published, Quantity, values, with_finding
from scotfree.study.figures.result import Coverage, Figure, Result

_US: Final = 1e3
_MS: Final = 1e6
_RATIO: Final = Quantity(
    "tax_ratio",
    "tax of the completion time",
    "share",
    words.percent,
    inputs.SERVER_SPANS,
)
_NETWORK: Final = Quantity(
    "network",
    "time on wire and in stacks",
    "ns",
    words.duration,
    inputs.STAGES,
)
_QUEUE: Final = Quantity(
    "queue",
    "time in queues",
    "ns",
    words.duration,
    inputs.STAGES,
)
# Section 3.2.
_RATIO_PUBLISHED: Final = [
    Published(0.50, 0.50, 0.086),
    Published(0.50, 0.90, 0.38),
    Published(0.90, 0.90, 0.96),
    Published(0.99, 0.01, 0.005),
    Published(0.99, 0.50, 0.66),
    Published(0.99, 0.99, 0.9999),
]
_NETWORK_PUBLISHED: Final = [
    Published(0.50, 0.50, 398 * _US, "<="),
    Published(0.99, 0.50, 115 * _MS, "<="),
    Published(0.99, 0.01, 6 * _MS),
    Published(0.99, 0.10, 19 * _MS),
    Published(0.99, 0.90, 271 * _MS, ">="),
    Published(0.99, 0.99, 826 * _MS, ">="),
]
_QUEUE_PUBLISHED: Final = [
    Published(0.50, 0.50, 360 * _US, "<="),
    Published(0.99, 0.50, 102 * _MS, "<="),
    Published(0.50, 0.90, 1.1 * _MS),
    Published(0.99, 0.90, 611 * _MS),
]
# The longest round trip between the paper's datacenters.
_WIDE_AREA_NS: Final = 200 * _MS


def ratio(study: Study) -> Result:
    """F11: the share of a call's completion time that is not its application."""
    made = with_finding(study, _RATIO, _RATIO_PUBLISHED)
    if made.coverage is not Coverage.ABSENT:
        mostly = float(np.mean(values(made.tables["methods"], "p50") > 0.5))
        many = words.counted(made.tables["methods"].num_rows, "method")
        made.findings.insert(
            0,
            f"Of {many}, {words.percent(mostly)} have more tax than work in a median call.",
        )
        made.notes.append("A nested call's time belongs to its caller's application (R2).")
    return made


def network(study: Study) -> Result:
    """F12: wire and stack, both ways."""
    made = with_finding(study, _NETWORK, _NETWORK_PUBLISHED)
    if made.coverage is not Coverage.ABSENT:
        beyond = float(np.mean(values(made.tables["methods"], "p99") > _WIDE_AREA_NS))
        made.notes.append(
            f"The longest wide-area round trip of the paper's fleet takes some {words.duration(_WIDE_AREA_NS)};"
            f" {words.percent(beyond)} of these methods have a P99 above that."
        )
    return made


def queue(study: Study) -> Result:
    """F13: the four queues."""
    return with_finding(study, _QUEUE, _QUEUE_PUBLISHED)


FIGURES = (
    Figure("F11", "Tax by completion time per method", "3.2", ratio),
    Figure("F12", "Wire and stack per method", "3.2", network),
    Figure("F13", "Queuing per method", "3.2", queue),
)
