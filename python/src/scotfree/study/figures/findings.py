"""The sentences that matter most over all figures: ranked by the share of all calls' time that each concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from scotfree.study.analysis import clustering, shares
from scotfree.study.analysis.selection import selected
from scotfree.study.analysis.study import Study
from scotfree.study.analysis.volumes import total, volumes
from scotfree.study.figures import errors, tax, what_if
from scotfree.study.figures.result import Coverage, Result
from scotfree.study.figures.words import called, duration, percent

MOST: Final = 5
# Of the tails; their figure has more.
_TAILS_MOST: Final = 2


@dataclass(frozen=True)
class Finding:
    """A sentence, the figure that shows it, and which share of the time of all successful calls it concerns."""

    number: str
    sentence: str
    share: float


def top(study: Study) -> list[Finding]:
    """At most MOST sentences, the weightiest first."""
    return sorted(_known(study), key=lambda one: -one.share)[:MOST]


def _known(study: Study) -> list[Finding]:
    return [*_tails(study), *_tax(study), *_cluster(study), *_error(study)]


def _tails(study: Study) -> list[Finding]:
    """What makes the tails that most time goes into."""
    found = what_if.cells(study)
    return [
        Finding(
            "F15",
            what_if.sentence(called(one.service, one.method), one.stage, found[one.method_id, one.stage]),
            one.share,
        )
        for one in what_if.weightiest(study, found)[:_TAILS_MOST]
    ]


def _tax(study: Study) -> Iterable[Finding]:
    """What dominates the tax."""
    sums = shares.sums(study)
    whole = tax.share(shares.select(sums, known=shares.APP), ["server_app"], rest=True).of_sums
    nine = shares.select(sums, known=shares.STAGES)
    parts = {part: tax.share(nine, stages).of_sums for part, stages in tax.PARTS.items()}
    known = {part: value for part, value in parts.items() if value is not None}
    if whole is None:
        return
    sentence = f"Tax is {percent(whole)} of {tax.whose(sums, tax.succeeded(study)[0])}"
    if known and (of_nine := tax.share(nine, ["server_app"], rest=True).of_sums):
        most = max(known, key=lambda part: known[part])
        sentence += f"; {tax.where_staged(sums)}{percent(known[most] / of_nine)} of it is {most}"
    time = shares.summed(sums, "total_ns")
    part = shares.summed(shares.select(sums, known=shares.APP), "total_ns") / time if time else 0.0
    yield Finding("F10", f"{sentence}.", whole * part)


def _cluster(study: Study) -> list[Finding]:
    """The cluster whose calls lose most time against the fastest one of the same method."""
    found = []
    for one in selected(study):
        rows = clustering.rows_of(study, one.method_id)
        samples = sum(row["samples"] for row in rows)
        for row in rows[1:]:
            fast = rows[0]
            lost = one.time_share * row["samples"] / samples * (1 - fast["p50"] / row["p50"])
            sentence = (
                f"{called(one.service, one.method)} loses most time in {row['server_cluster']}: its median is "
                f"{duration(row['p50'])} there and {duration(fast['p50'])} in {fast['server_cluster']}."
            )
            found.append(Finding("F16", sentence, lost))
    return sorted(found, key=lambda one: -one.share)[:1]


def _error(study: Study) -> Iterable[Finding]:
    """The error that wastes most; its share of all cycles stands for that of time."""
    rows, cycles = errors.errors(volumes(study)), total(volumes(study), "cycles")
    costly = [row for row in rows if row["cycles"] and errors.is_settled(row)]
    if not costly or not cycles:
        return
    worst = max(costly, key=lambda row: float(row["cycles"]))
    wasted = worst["cycles"] / cycles
    yield Finding("F23", f"Calls that end as {worst['status']} waste {percent(wasted)} of all cycles.", wasted)


def unsaid(results: Mapping[str, Result]) -> list[tuple[list[str], list[str]]]:
    """Figures without anything to show, and what they wait for: those that wait for the same are together.

    What most figures wait for comes first.
    """
    waiting: dict[tuple[str, ...], list[str]] = {}
    for number, result in results.items():
        if result.coverage is Coverage.ABSENT:
            waiting.setdefault(tuple(dict.fromkeys(result.missing)), []).append(number)
    ordered = sorted(waiting.items(), key=lambda one: -len(one[1]))
    return [(numbers, list(missing)) for missing, numbers in ordered]
