"""The figures and tables of the characterization: from aggregates to what a page shows."""

from __future__ import annotations

from scotfree.study.figures import (
    clusters,
    completion,
    cycles,
    cycles_per_call,
    errors,
    exogenous,
    growth,
    latency,
    load,
    methodology,
    popularity,
    services,
    sizes,
    tax,
    tax_per_method,
    trees,
    what_if,
)
from scotfree.study.figures.result import Figure

# Each with FIGURES.
_MODULES = (
    growth,
    latency,
    popularity,
    trees,
    sizes,
    services,
    tax,
    tax_per_method,
    completion,
    what_if,
    clusters,
    exogenous,
    cycles,
    cycles_per_call,
    load,
    errors,
    methodology,
)


def all_figures() -> tuple[Figure, ...]:
    """Every figure, in the paper's order: figures by number, then tables, then numbers of the text."""
    found = [figure for module in _MODULES for figure in module.FIGURES]
    return tuple(sorted(found, key=_place))


def _place(figure: Figure) -> tuple[int, float]:
    """F2 -> (0, 2); T1 -> (1, 1); S5.2 -> (2, 5.2)."""
    return "FTS".index(figure.number[0]), float(figure.number[1:])


__all__ = ["all_figures"]
