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
from scotfree.study.figures.words import called, duration, listed, percent

MOST: Final = 10
_MISSING_MOST: Final = 3


@dataclass(frozen=True)
class Finding:
    """A sentence, the figure that shows it, and which share of the time of all successful calls it concerns."""

    number: str
    sentence: str
    share: float


def top(study: Study, results: Mapping[str, Result]) -> list[Finding]:
    """At most MOST sentences; `results` by figure.

    What is known, the weightiest first; where that is little, what other figures say; what could not be said.
    """
    unsaid = _unsaid(results)
    known = sorted(_known(study), key=lambda one: -one.share)
    return (known + _others(results, known))[: MOST - len(unsaid)] + unsaid


def _others(results: Mapping[str, Result], known: list[Finding]) -> list[Finding]:
    """The first sentences of the figures that have not spoken yet, in their order."""
    spoken = {one.number for one in known}
    return [
        Finding(number, result.findings[0], 0.0)
        for number, result in results.items()
        if number not in spoken and result.findings
    ]


def _known(study: Study) -> list[Finding]:
    return [*_tails(study), *_tax(study), *_cluster(study), *_error(study)]


def _tails(study: Study) -> list[Finding]:
    """What makes the tails that most time goes into."""
    tails = what_if.weightiest(study, what_if.cells(study))
    return [
        Finding("F15", what_if.sentence(called(one.service, one.method), one.stage, one.leaves), one.share)
        for one in tails
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
    sentence = f"Tax is {percent(whole)} of the calls' time"
    if known and (of_nine := tax.share(nine, ["server_app"], rest=True).of_sums):
        most = max(known, key=lambda part: known[part])
        sentence += f"; {percent(known[most] / of_nine)} of it is {most}"
    yield Finding("F10", f"{sentence}.", whole)


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


def _unsaid(results: Mapping[str, Result]) -> list[Finding]:
    """The inputs that are missing, those that most figures wait for first."""
    waiting: dict[str, list[str]] = {}
    for number, result in results.items():
        for name in dict.fromkeys(result.missing) if result.coverage is not Coverage.COMPLETE else ():
            waiting.setdefault(name, []).append(number)
    ordered = sorted(waiting.items(), key=lambda one: -len(one[1]))[:_MISSING_MOST]
    return [
        Finding(
            numbers[0],
            f"Not to be told, or only in part: {listed(numbers)}. "
            f"{'It needs' if len(numbers) == 1 else 'They need'} {name}.",
            0.0,
        )
        for name, numbers in ordered
    ]
