"""F23: which errors there are, what they cost, and what hedging wastes."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study import schema
from scotfree.study.analysis.selection import plain_name
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import part, total, volumes
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import percent

# Section 4.4: share of all calls; then error -> share of errors, share of the cycles of errors.
_PUBLISHED_RATE: Final = 0.019
_PUBLISHED: Final = {"cancelled": (0.45, 0.55), "not found": (0.20, 0.21)}
# Status codes of gRPC as numbers, and of HTTP, where they mean the same.
_SAME: Final = {"1": "cancelled", "canceled": "cancelled", "499": "cancelled", "5": "notfound", "404": "notfound"}
# Only part of the calls say what they cost, in the paper too (section 4.2): half of them will do.
COSTED_MIN: Final = 0.5
# The sum of so many calls, each as dear, is known within a fifth.
_DEAR_MIN: Final = 25

Rows = list[dict[str, Any]]


def errors(volume: pa.Table) -> Rows:
    """One row per status that is no success, the most frequent first; shares of the errors' calls and cycles."""
    failed = volume.filter(pc.not_equal(volume["status"], schema.STATUS_OK))
    found = (
        failed.group_by("status")
        .aggregate([(name, "sum") for name in ("calls", "cycles", "cycles_squared", "costed")])
        .to_pylist()
    )
    calls, cycles = total(failed, "calls"), total(failed, "cycles")
    rows = [
        {
            "status": row["status"],
            "calls": row["calls_sum"],
            "share": row["calls_sum"] / calls,
            "cycles": row["cycles_sum"] if row["costed_sum"] else None,
            "cycle_share": row["cycles_sum"] / cycles if cycles else None,
            # Of so many calls, each as dear, the cycles would be as uncertain (R7).
            "dear_calls": row["cycles_sum"] ** 2 / row["cycles_squared_sum"] if row["cycles_sum"] else None,
        }
        for row in found
    ]
    return sorted(rows, key=lambda row: (-row["calls"], row["status"]))


def is_settled(row: dict[str, Any]) -> bool:
    """Whether the cycles of a row of `errors` rest on calls enough."""
    return bool((row["dear_calls"] or 0.0) >= _DEAR_MIN)


def _named(rows: Rows, error: str, column: str) -> float | None:
    """A published error's share among the user's; 0 where it does not occur, None where it cannot be told."""
    wanted = plain_name(error)
    values = [row[column] for row in rows if plain_status(row["status"]) == wanted]
    return (
        sum(value for value in values if value is not None)
        if any(row[column] is not None for row in rows)
        else None
    )


def plain_status(status: str) -> str:
    """A status without its spelling: `CANCELLED`, gRPC's 1 and HTTP's 499 are one."""
    name = plain_name(status)
    return _SAME.get(name, name)


def _comparisons(rate: float, rows: Rows) -> list[Comparison]:
    found = [Comparison("calls that fail", _PUBLISHED_RATE, rate, "share")]
    for error, (by_count, by_cycles) in _PUBLISHED.items():
        for column, value, of in (("share", by_count, "errors"), ("cycle_share", by_cycles, "the errors' cycles")):
            place = Row(plain_name(error), column)
            measured = _named(rows, error, column)
            found.append(Comparison(f"{error}: share of {of}", value, measured, "share", place=place))
    return found


def _hedging(volume: pa.Table) -> dict[str, float | None]:
    """What hedges are of all calls, of all cycles and of cancelled calls."""
    hedges = volume.filter(volume["is_hedge"])
    cancelled = volume.filter(
        pa.array([plain_status(status) == "cancelled" for status in volume["status"].to_pylist()], pa.bool_())
    )
    known, lost = total(cancelled, "calls"), total(cancelled.filter(cancelled["is_hedge"]), "calls")
    cycles = total(volume, "cycles")
    return {
        "share_of_calls": total(hedges, "calls") / total(volume, "calls"),
        "share_of_cycles": total(hedges, "cycles") / cycles if cycles else None,
        "share_of_cancelled": lost / known if known else None,
    }


def compute(study: Study) -> Result:
    """F23: error types by count and by the cycles that they waste; hedging."""
    volume = volumes(study)
    if total(volume, "calls") <= 0:
        return absent(inputs.CALLS)
    rows = errors(volume)
    if not rows:
        return absent(inputs.ERRORS)
    rate = sum(row["calls"] for row in rows) / total(volume, "calls")
    hedging, is_hedging = _hedging(volume), total(volume, "hedge_known") > 0
    costed = part(volume, "costed")
    missing = ([inputs.CYCLES] if costed < COSTED_MIN else []) + ([] if is_hedging else [inputs.HEDGES])
    tables = {"errors": pa.Table.from_pylist(rows)}
    if is_hedging:
        tables["hedging"] = pa.Table.from_pylist([hedging])
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        tables,
        missing,
        _findings(rate, rows, hedging if is_hedging else None),
        _comparisons(rate, rows),
        [
            f"Cycles: of the {percent(costed)} of the calls that say them. A failed call's are counted as wasted.",
            "A hedge is a call that repeats another which is still under way; the cycles of all hedges "
            "are counted, "
            "for of each pair one answer is thrown away.",
        ],
    )


def _findings(rate: float, rows: Rows, hedging: dict[str, float | None] | None) -> list[str]:
    first = rows[0]
    found = [f"{percent(rate)} of the calls fail; {percent(first['share'])} of these are {first['status']}."]
    dearest = max(rows, key=lambda row: row["cycle_share"] or 0.0)
    if dearest["cycle_share"]:
        share = percent(dearest["cycle_share"])
        few = "" if is_settled(dearest) else "; few calls make up nearly all of it, so that may be chance"
        found.append(f"{dearest['status']} wastes most cycles: {share} of those of all errors{few}.")
    if hedging and hedging["share_of_calls"]:
        cycles = hedging["share_of_cycles"]
        costs = f" and {percent(cycles)} of the cycles" if cycles is not None else ""
        found.append(f"Hedges are {percent(hedging['share_of_calls'])} of the calls{costs}.")
    return found


FIGURES = (Figure("F23", "Errors and hedging", "4.4", compute),)
