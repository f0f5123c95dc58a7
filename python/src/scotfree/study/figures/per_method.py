"""What the figures of quantiles per method have in common: order, distribution over methods, coverage.

Every method counts once, whatever its popularity; "the P99 that half of methods do not exceed" is a nearest rank
over methods of a nearest rank over calls (R6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis.quantiles import column
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs, words
from scotfree.study.figures.result import Comparison, Coverage, OverMethods, Result, absent

# Points of a distribution over methods: more than a page has pixels for it.
_CDF_POINTS_MAX = 1000


@dataclass(frozen=True)
class Published:
    """A published value: a quantile over calls, then over methods."""

    p: float
    # Share of methods that do not exceed it.
    methods: float
    value: float
    relation: str = "about"


# A figure per method that leaves out more of the calls is not complete.
CALLS_SHARE_MIN: Final = 0.5


@dataclass(frozen=True)
class Quantity:
    """A quantity of the study, as figures show it."""

    name: str
    # As in a sentence: "completion time".
    noun: str
    unit: str
    say: Callable[[float], str]
    # What a user adds so that it is there.
    needs: str
    # Of methods with enough calls, how many must have it for a complete figure.
    share: float = inputs.COMPLETE_MIN
    # Failed calls count too: a place in a tree is not a latency (R1).
    with_errors: bool = False


def values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """A column."""
    found: npt.NDArray[Any] = table[name].to_numpy()
    return found


def over_methods(found: pa.Table, p: float, share: float) -> float | None:
    """The value that a share of methods does not exceed, of their p-quantiles: nearest rank, each method once."""
    return nearest_rank(values(found, column(p)), share)


def nearest_rank(of: npt.NDArray[Any], share: float) -> float | None:
    """The smallest value whose rank reaches a share of all; None of nothing."""
    if len(of) == 0:
        return None
    rank = -(-round(share * schema.PARTS) * len(of) // schema.PARTS)
    return float(np.sort(of)[max(0, rank - 1)])


def distribution(found: pa.Table) -> pa.Table:
    """Columns share, p01 … p99: for each quantile the value that this share of methods does not exceed."""
    points = min(_CDF_POINTS_MAX, found.num_rows)
    shares = np.arange(1, points + 1) / max(points, 1)
    ranks = np.ceil(np.arange(1, points + 1) * found.num_rows / max(points, 1)).astype(np.int64) - 1
    names = [column(p) for p in schema.QUANTILES]
    return pa.table({"share": shares, **{name: np.sort(values(found, name))[ranks] for name in names}})


def compare(quantity: Quantity, found: pa.Table, published: list[Published]) -> list[Comparison]:
    """Published values beside the user's."""
    return [
        Comparison(
            f"{quantity.noun}: P{round(each.p * 100)} that {each.methods * 100:g} % of methods do not exceed",
            each.value,
            over_methods(found, each.p, each.methods),
            quantity.unit,
            each.relation,
            OverMethods(quantity.name, each.p, each.methods),
        )
        for each in published
    ]


def enough_calls(study: Study, with_errors: bool) -> int:
    """How many methods have enough calls for a figure (R3), whatever is known of them."""
    return int((_calls(study, with_errors) >= schema.SAMPLES_MIN).sum())


def share_of_calls(study: Study, with_errors: bool) -> float:
    """Which share of the calls is of such methods."""
    calls = _calls(study, with_errors)
    return float(calls[calls >= schema.SAMPLES_MIN].sum() / max(1, calls.sum()))


def _calls(study: Study, with_errors: bool) -> npt.NDArray[Any]:
    counts = study.counts()
    calls = counts["calls"] if with_errors else pc.subtract(counts["calls"], counts["errors"])
    found: npt.NDArray[Any] = calls.to_numpy()
    return found


def result(study: Study, quantity: Quantity, published: list[Published], *, prefix: str = "") -> Result:
    """The quantiles per method, their distribution over methods, and the published values.

    Tables `methods` and `cdf`, their names after `prefix`.
    """
    found = study.quantiles(quantity.name)
    if found.num_rows == 0:
        return absent(missing(study, quantity))
    lacking = too_few(study, quantity, found)
    return Result(
        Coverage.PARTIAL if lacking else Coverage.COMPLETE,
        {f"{prefix}methods": found, f"{prefix}cdf": distribution(found)},
        lacking,
        comparisons=compare(quantity, found, published),
        notes=[counted(quantity, found, enough_calls(study, quantity.with_errors))],
    )


def too_few(study: Study, quantity: Quantity, found: pa.Table) -> list[str]:
    """What a figure lacks that leaves out many methods, or most calls; nothing of one that is complete."""
    wanted = enough_calls(study, quantity.with_errors)
    lacking = []
    if found.num_rows < quantity.share * wanted:
        lacking.append(f"{quantity.needs}: {found.num_rows:,} of {wanted:,} methods have it")
    share = share_of_calls(study, quantity.with_errors)
    if share < CALLS_SHARE_MIN:
        lacking.append(
            f"more calls of each method: with {schema.SAMPLES_MIN} or more make {words.percent(share)} of all"
        )
    return lacking


def missing(study: Study, quantity: Quantity) -> str:
    """Why no method is in the figure."""
    return quantity.needs if enough_calls(study, quantity.with_errors) else inputs.SAMPLES


def counted(quantity: Quantity, found: pa.Table, wanted: int) -> str:
    """Which methods and calls are in it."""
    which = "calls, failed ones too" if quantity.with_errors else "calls that succeeded"
    sketched = found.num_rows - int(pc.sum(found["is_exact"]).as_py())
    how = f"; {sketched:,} of them from histograms within {words.percent(schema.SKETCH_ERROR)}" if sketched else ""
    return (
        f"{found.num_rows:,} of {wanted:,} methods with {schema.SAMPLES_MIN} {which}; quantiles by nearest rank,"
        f" weighted by 1 / sampling probability{how}."
    )


def name_of(row: dict[str, Any]) -> str:
    """A method as a sentence names it."""
    return words.called(row["service"], row["method"])


def extreme(found: pa.Table, name: str) -> dict[str, Any]:
    """The row with the greatest value of a column."""
    row: dict[str, Any] = found.slice(int(np.argmax(values(found, name))), 1).to_pylist()[0]
    return row


def finding(quantity: Quantity, found: pa.Table) -> str:
    """Typical method and worst tail, in one sentence."""
    median, tail = over_methods(found, 0.5, 0.5) or 0.0, over_methods(found, 0.99, 0.5) or 0.0
    worst = extreme(found, "p99")
    if found.num_rows == 1:
        said = f"a median of {quantity.say(median)} and a P99 of {quantity.say(tail)}"
        return f"{quantity.noun.capitalize()}: {name_of(worst)} has {said}."
    many = words.counted(found.num_rows, "method")
    return (
        f"{quantity.noun.capitalize()}: half of {many} have a median of {quantity.say(median)} or less"
        f" and a P99 of {quantity.say(tail)} or less; the highest P99 is {name_of(worst)}'s"
        f" with {quantity.say(worst['p99'])}."
    )


def with_finding(study: Study, quantity: Quantity, published: list[Published]) -> Result:
    """`result` with that sentence."""
    made = result(study, quantity, published)
    if made.coverage is not Coverage.ABSENT:
        made.findings = [finding(quantity, made.tables["methods"])]
    return made
