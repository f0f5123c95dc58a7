"""F3: which methods are called most, and which take the time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.figures import words
from scotfree.study.figures.latency import TOTAL
from scotfree.study.figures.per_method import missing, name_of, too_few, values
from scotfree.study.figures.result import Comparison, Coverage, Figure, MostPopular, Result, absent

Array = npt.NDArray[Any]
# How many of the most popular methods have which share of calls (section 2.3).
_POPULAR: Final = ((1, 0.28), (10, 0.58), (100, 0.91))

# Sums of shares lie beside the true ones by less than this.
_ROUNDING: Final = 1e-9


def compute(study: Study) -> Result:
    """Each method's share of calls and of time, in F2's order and by popularity.

    Tables: `methods` (F2's methods and order: rank from 1, share, cumulative_share, time_share,
    cumulative_time_share) and `popularity` (all methods, most popular first: rank, share, cumulative_share).
    """
    counts = study.counts()
    popularity = _by_popularity(counts)
    ordered = study.quantiles(TOTAL.name)
    if ordered.num_rows == 0:
        lacking = missing(study, TOTAL)
        if counts.num_rows == 0:
            return absent(lacking)
        return _partial(popularity, lacking)
    methods = _by_latency(counts, ordered)
    few = too_few(study, TOTAL, ordered)
    return Result(
        Coverage.PARTIAL if few else Coverage.COMPLETE,
        {"methods": methods, "popularity": popularity},
        few,
        findings=[*_popular_finding(popularity), _slow_finding(methods)],
        comparisons=[*_popular_comparisons(popularity), *_order_comparisons(methods)],
        notes=[
            f"Shares are of all calls, failed ones too; {words.percent(_without_place(counts, methods))} of them"
            " are of methods with too few calls for a place in the order of latency.",
            "The paper's 100 fastest and 1,000 slowest are 1 % and 10 % of its 10,000 methods.",
        ],
    )


def _partial(popularity: pa.Table, lacking: str) -> Result:
    return Result(
        Coverage.PARTIAL,
        {"popularity": popularity},
        [lacking],
        _popular_finding(popularity),
        _popular_comparisons(popularity),
    )


def _by_popularity(counts: pa.Table) -> pa.Table:
    share = values(counts, "weight") / values(counts, "weight").sum()
    order = np.lexsort((values(counts, "method_id"), -share))
    rank = np.arange(1, len(order) + 1)
    named = counts.select(["method_id", "service", "method", "calls"]).take(order)
    return _with(named, rank=rank, share=share[order], cumulative_share=np.cumsum(share[order]))


def _by_latency(counts: pa.Table, ordered: pa.Table) -> pa.Table:
    """Rows of `ordered`; every share is of all methods, also of those that are not in it."""
    rows = np.searchsorted(values(counts, "method_id"), values(ordered, "method_id"))
    # Calls may have taken no time at all.
    shares = [
        values(counts, name)[rows] / (values(counts, name).sum() or 1.0) for name in ("weight", "sum_total_ns")
    ]
    return _with(
        ordered.select(["method_id", "service", "method", "p50"]),
        rank=np.arange(1, len(rows) + 1),
        share=shares[0],
        cumulative_share=np.cumsum(shares[0]),
        time_share=shares[1],
        cumulative_time_share=np.cumsum(shares[1]),
    )


def _without_place(counts: pa.Table, methods: pa.Table) -> float:
    """The share of calls whose method is not in F2: a sum of its own, since what is left of 1 is never quite 0."""
    is_without = ~np.isin(values(counts, "method_id"), values(methods, "method_id"))
    weight = values(counts, "weight")
    return float(weight[is_without].sum() / weight.sum())


def _with(table: pa.Table, **columns: Array) -> pa.Table:
    for name, of in columns.items():
        table = table.append_column(name, pa.array(of))
    return table


def _popular_comparisons(popularity: pa.Table) -> list[Comparison]:
    """None where there are not more methods than are asked for: their share would be all."""
    reached = values(popularity, "cumulative_share")
    return [
        Comparison(
            "calls of the most popular method" if top == 1 else f"calls of the {top} most popular methods",
            published,
            float(reached[top - 1]) if len(reached) > top else None,
            "share",
            "about",
            MostPopular(top),
        )
        for top, published in _POPULAR
    ]


def _order_comparisons(methods: pa.Table) -> list[Comparison]:
    fastest, slowest = _first(methods.num_rows, 0.01), _first(methods.num_rows, 0.10)
    share, time = values(methods, "share"), values(methods, "time_share")
    pairs = [
        ("calls of the fastest 1 % of methods", 0.40, share[:fastest]),
        ("calls of the slowest 10 % of methods", 0.011, share[-slowest:]),
        ("time of the slowest 10 % of methods", 0.89, time[-slowest:]),
    ]
    return [Comparison(what, published, float(of.sum()), "share", "about") for what, published, of in pairs]


def _first(count: int, share: float) -> int:
    """At least one method."""
    return max(1, round(count * share))


def _popular_finding(popularity: pa.Table) -> list[str]:
    half = int(np.searchsorted(values(popularity, "cumulative_share"), 0.5 - _ROUNDING)) + 1
    makes = "make" if half > 1 else "makes"
    of_half = f"{words.counted(half, 'method')} of {popularity.num_rows:,} {makes} up half"
    if _is_tied(values(popularity, "share")[:2]):
        return [f"{of_half} of all calls."]
    top = popularity.slice(0, 1).to_pylist()[0]
    return [f"{name_of(top)} alone is {words.percent(top['share'])} of all calls; {of_half}."]


def _is_tied(first: Array) -> bool:
    """Whether of the two greatest shares none is greater."""
    return len(first) > 1 and bool(np.ptp(first) < _ROUNDING)


def _slow_finding(methods: pa.Table) -> str:
    """Of those in the order of latency; shares are of all calls, and of the time that all clients saw."""
    slowest = _first(methods.num_rows, 0.10)
    share, time = (
        words.percent(float(values(methods, name)[-slowest:].sum())) for name in ("share", "time_share")
    )
    timed = f"with {schema.SAMPLES_MIN} calls that their clients timed"
    last = name_of(methods.slice(methods.num_rows - 1).to_pylist()[0])
    which = f"the slowest, {last}, has" if slowest == 1 else f"the slowest {slowest:,} have"
    of_slowest = f"{share} of all calls and {time} of the time of all"
    if methods.num_rows == 1:
        return f"Only {last} is a method {timed}: {of_slowest}."
    most, second = methods.take(np.argsort(-values(methods, "time_share"))[:2]).to_pylist()
    takes = f"; {name_of(most)} takes most of them, {words.percent(most['time_share'])}"
    is_tied = most["time_share"] - second["time_share"] < _ROUNDING
    return f"Of the {methods.num_rows:,} methods {timed} {which} {of_slowest}{'' if is_tied else takes}."


FIGURES = (Figure("F3", "Popularity of methods", "2.3", compute),)
