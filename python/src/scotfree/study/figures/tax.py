"""F9 and F10: what is known of the nine stages, and which part of the calls' time is tax (R5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from scotfree.study import schema
from scotfree.study.analysis import shares
from scotfree.study.analysis.provenance import by_stage
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import counted, percent

PARTS = {"wire": schema.WIRES, "stack": schema.STACKS, "queue": schema.QUEUES}
SIDES = ("request_side", "response_side")
# Scope, the column of `shares.sums` that selects it, and how it is called.
_SCOPES = (
    ("all", None, "all calls"),
    ("tail", "in_tail", "calls of the P95 tail of their own method"),
    ("global_tail", "in_global_tail", "calls of the P95 tail of all calls"),
)
# Section 3.2 and Figure 10: share of the total time of all calls.
_PUBLISHED = {"tax": 0.020, "wire": 0.011, "stack": 0.0049, "queue": 0.0043}
_PUBLISHED_QUEUE_OF_TAX = 0.21
# Of which calls' time the tax is a share, where all that succeeded tell it.
_ALL = "the calls' time"


@dataclass(frozen=True)
class Share:
    """Of the calls' time: ratio of sums, and mean of the calls' own ratios. None of no call."""

    of_sums: float | None
    mean: float | None


def share(rows: pa.Table, stages: Sequence[str], *, rest: bool = False) -> Share:
    """Which share of their calls' time these stages are; `rest` asks for all but them."""
    total, ratios = shares.summed(rows, "total_ns"), shares.summed(rows, "ratio_weight")
    parts = sum(shares.summed(rows, f"{stage}_ns") for stage in stages)
    means = sum(shares.summed(rows, f"{stage}_ns_ratio") for stage in stages)
    return Share(_part(parts, total, rest), _part(means, ratios, rest))


def _part(part: float, whole: float, rest: bool) -> float | None:
    if whole <= 0:
        return None
    found = (whole - part) / whole if rest else part / whole
    # So little is left where nothing is, by the order in which sums were added.
    return found if abs(found) > schema.ROUNDING else 0.0


def _scope(sums: pa.Table, within: str | None) -> dict[str, Share]:
    """Tax and application of calls whose application is known; sides and stages of those where they are."""
    app = shares.select(sums, known=shares.APP, within=within)
    nine = shares.select(sums, known=shares.STAGES, within=within)
    found = {"tax": share(app, ["server_app"], rest=True), "app": share(app, ["server_app"])}
    sides = shares.select(sums, known=shares.SIDES, within=within)
    found |= {side: share(sides, [side]) for side in SIDES}
    found |= {part: share(nine, stages) for part, stages in PARTS.items()}
    found |= {stage: share(nine, [stage]) for stage in schema.STAGES if stage != "server_app"}
    return found | {"unattributed": share(nine, schema.STAGES, rest=True)}


def _table(scopes: dict[str, dict[str, Share]]) -> pa.Table:
    rows = [
        {"scope": scope, "part": part, "share": found.of_sums, "mean_of_ratios": found.mean}
        for scope, parts in scopes.items()
        for part, found in parts.items()
    ]
    kinds = pa.schema(
        [("scope", pa.string()), ("part", pa.string()), ("share", pa.float64()), ("mean_of_ratios", pa.float64())]
    )
    return pa.Table.from_pylist(rows, schema=kinds)


def _comparisons(scopes: dict[str, dict[str, Share]]) -> list[Comparison]:
    own, published = scopes["all"], _PUBLISHED
    found = [
        Comparison(f"{part} of the time of all calls", value, own[part].of_sums, "share", place=Row(part, "all"))
        for part, value in published.items()
    ]
    found += [
        Comparison(f"{part} of the time of all calls, mean of ratios", None, own[part].mean, "share")
        for part in published
    ]
    found += [
        Comparison(f"{part} of the time of {words}", None, scopes[scope][part].of_sums, "share")
        for scope, _, words in _SCOPES[1:]
        for part in published
    ]
    return found


def _skew(scopes: dict[str, dict[str, Share]], of: str) -> str | None:
    """In which direction the tax moves from all calls to the tail."""
    own, tail = scopes["all"], scopes["tail"]
    known = [part for part in PARTS if own[part].of_sums is not None and tail[part].of_sums is not None]
    if not known or tail["tax"].of_sums is None:
        return None
    most = max(known, key=lambda part: abs((tail[part].of_sums or 0.0) - (own[part].of_sums or 0.0)))
    values = [percent(scope[most].of_sums or 0.0) for scope in (own, tail)]
    return (
        f"In the P95 tails of the methods tax is {percent(tail['tax'].of_sums)} of {of}; "
        f"{most} changes most, from {values[0]} to {values[1]}."
    )


def _sides(own: dict[str, Share]) -> str:
    """Where no stage is known, perhaps on which side of the application the tax is."""
    values = [own[side].of_sums for side in SIDES]
    if values[0] is None or values[1] is None:
        return "; its parts are not known."
    return (
        "; its stages are not known. In those calls alone whose clocks agree well enough to tell, "
        f"{percent(values[0])} of their time is before the application and {percent(values[1])} behind it."
    )


def whose(sums: pa.Table, calls: int) -> str:
    """Of which calls' time the tax is a share: of all that succeeded, or of those that say their server's."""
    known = _samples(sums, shares.APP)
    if known == calls:
        return _ALL
    return f"the time of the {known:,} calls (of {calls:,}) with the times of both sides"


def where_staged(sums: pa.Table) -> str:
    """Of which calls the parts of the tax are, if not of all that tell the tax."""
    nine = _samples(sums, shares.STAGES)
    return "" if nine == _samples(sums, shares.APP) else f"in the {counted(nine, 'call')} with all nine stages "


def _samples(sums: pa.Table, known: int) -> int:
    return round(shares.summed(shares.select(sums, known=known), "samples"))


def succeeded(study: Study) -> tuple[int, float]:
    """How many calls succeeded, whatever is known of them, and how many they stand for."""
    counts = study.counts()
    calls, weight = (
        shares.summed(counts, whole) - shares.summed(counts, failed)
        for whole, failed in (("calls", "errors"), ("weight", "error_weight"))
    )
    return round(calls), weight


def _findings(scopes: dict[str, dict[str, Share]], of: str, where: str) -> list[str]:
    own = scopes["all"]
    parts = sorted(
        ((found.of_sums, part) for part in PARTS if (found := own[part]).of_sums is not None), reverse=True
    )
    named = ", ".join(f"{part} {percent(value or 0.0)}" for value, part in parts)
    tax = percent(own["tax"].of_sums or 0.0)
    first = f"Tax is {tax} of {of}" + (f": {where}{named}." if named else _sides(own))
    return [
        sentence for sentence in (first, _skew(scopes, _ALL if of == _ALL else "such calls' time")) if sentence
    ]


def compute_tax(study: Study) -> Result:
    """F10: tax and its parts as shares of the calls' time, of all calls and of the tails."""
    sums = shares.sums(study)
    calls, weight = succeeded(study)
    app, nine = (
        shares.summed(shares.select(sums, known=known), "weight") / weight if weight else 0.0
        for known in (shares.APP, shares.STAGES)
    )
    if app <= 0:
        return absent(inputs.SERVER_SPANS, inputs.STAGES)
    scopes = {scope: _scope(sums, within) for scope, within, _ in _SCOPES}
    covered = inputs.coverage(nine)
    missing = [] if covered is Coverage.COMPLETE else [inputs.STAGES]
    if app < inputs.COMPLETE_MIN:
        missing.append(inputs.SERVER_SPANS)
    tables = {"shares": _table(scopes)}
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        tables,
        missing,
        _findings(scopes, whose(sums, calls), where_staged(sums)),
        _comparisons(scopes),
        _notes(app, nine),
    )


def _notes(app: float, nine: float) -> list[str]:
    return [
        "A share is a ratio of sums over all calls; the mean of the calls' own ratios, which weighs a short call "
        "as a long one, is given beside it.",
        "Tail: calls with total >= P95 of their own method, of methods with 100 samples (R3); the paper does not "
        "define it. The tail of all calls together is given as the third scope.",
        f"Tax rests on {percent(app)} of the successful calls, its parts on {percent(nine)}. "
        "Where the tax is known only as one sum (client's time less server's), its share is counted and the split "
        "is not.",
        "Sides: what lies before the application and behind it, of calls where the clocks of both "
        "machines tell it.",
        "What of the tax none of the eight stages accounts for is the part `unattributed`.",
    ]


def compute_queue(study: Study) -> Result:
    """Section 5.2: queueing as a share of the tax."""
    nine = shares.select(shares.sums(study), known=shares.STAGES)
    queue, tax = share(nine, schema.QUEUES).of_sums, share(nine, ["server_app"], rest=True).of_sums
    if queue is None or not tax:
        return absent(inputs.STAGES)
    covered = compute_tax(study)
    table = pa.table({"part": ["queue", "tax"], "share": [queue, tax]})
    return Result(
        covered.coverage,
        {"queue": table},
        covered.missing,
        [f"Queues are {percent(queue / tax)} of the tax."],
        [Comparison("queue of the tax", _PUBLISHED_QUEUE_OF_TAX, queue / tax, "share", place=Row("queue"))],
        ["Ratio of sums over the calls of which all nine stages are known."],
    )


def compute_coverage(study: Study) -> Result:
    """F9: the nine components, and of which share of the calls each is known, and how."""
    table = by_stage(study)
    calls = np.array(table["calls"])
    if calls.sum() <= 0:
        return absent(inputs.CALLS)
    hows = np.array(table["how"])
    known = float(calls[(hows == "measured") | (hows == "derived")].sum() / calls.sum())
    covered = inputs.coverage(known)
    missing = [] if covered is Coverage.COMPLETE else [inputs.STAGES]
    lumped = float(calls[hows == "lumped"].sum() / calls.sum())
    in_sums = f", {percent(lumped)} only as a sum" if lumped else ""
    finding = f"Of the nine stages of all calls {percent(known)} are known{in_sums}."
    # The components are the figure; that few are known of the user's calls is what it then shows.
    covered = Coverage.PARTIAL if covered is Coverage.ABSENT else covered
    return Result(covered, {"stages": table}, missing, [finding])


FIGURES = (
    Figure("F9", "The nine components of a call", "3.1", compute_coverage),
    Figure("F10", "Latency tax and its parts", "3.2", compute_tax),
    Figure("S5.2", "Queueing as a share of the tax", "5.2", compute_queue),
)
