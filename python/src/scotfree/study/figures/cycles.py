"""F20: the RPC cycle tax: which share of processor time is compression, networking, serialization, RPC library."""

from __future__ import annotations

from scotfree.study.analysis.cycles.rules import TAX, UNCLASSIFIED
from scotfree.study.analysis.cycles.tax import CycleTax
from scotfree.study.analysis.study import Study
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import percent

# Figure 20: shares of all cycles of the fleet.
_PUBLISHED = {"compression": 0.031, "networking": 0.017, "serialization": 0.012, "rpc_library": 0.011}
_PUBLISHED_TAX = 0.071
# Above that share of unclassified time the other shares may be off by more than they differ from one another.
_UNCLASSIFIED_MAX = 0.10
_NAMES = {"rpc_library": "RPC library"}


def compute(study: Study) -> Result:
    """The shares of the tax's four categories and of all others, per service and in all."""
    tax = study.cycle_tax()
    if tax is None:
        return absent("a profile of processor time: pprof, perf script, OTLP profiles or folded stacks")
    missing = _missing(tax)
    return Result(
        Coverage.PARTIAL if missing else Coverage.COMPLETE,
        {
            "fleet": tax.fleet,
            "services": tax.services,
            "rules": tax.rules_used,
            "unclassified": tax.unclassified,
        },
        missing,
        _findings(tax),
        _comparisons(tax),
        _notes(tax),
    )


def _total(tax: CycleTax) -> float:
    return sum(tax.share(category) for category in TAX)


def _missing(tax: CycleTax) -> list[str]:
    missing = []
    if tax.share(UNCLASSIFIED) > _UNCLASSIFIED_MAX:
        missing.append("rules for the unclassified symbols (--rules FILE), or profiles with symbols")
    if tax.other_units:
        missing.append(f"one unit for all profiles: {', '.join(tax.other_units)} are left out beside {tax.unit}")
    return missing


def _findings(tax: CycleTax) -> list[str]:
    largest = max(TAX, key=tax.share)
    said = [
        f"{percent(_total(tax))} of processor time is RPC cycle tax, most of it {_name(largest)} "
        f"({percent(tax.share(largest))}); published: {percent(_PUBLISHED_TAX)}."
    ]
    rest = tax.share(UNCLASSIFIED)
    if rest > 0:
        heaviest = tax.unclassified.to_pylist()[0]
        symbol = heaviest["symbol"] or "no symbol"
        said.append(f"{percent(rest)} of it no rule classifies; most in {symbol} ({percent(heaviest['share'])}).")
    return said


def _comparisons(tax: CycleTax) -> list[Comparison]:
    whole = Comparison("share of processor time that is RPC cycle tax", _PUBLISHED_TAX, _total(tax), "share")
    parts = [
        Comparison(
            f"share of processor time in {_name(category)}",
            published,
            tax.share(category),
            "share",
            place=Row(category),
        )
        for category, published in _PUBLISHED.items()
    ]
    return [whole, *parts]


def _name(category: str) -> str:
    return _NAMES.get(category, category)


def _notes(tax: CycleTax) -> list[str]:
    own = len([rule for rule in tax.rules_used["rule"].to_pylist() if rule == "own executable"])
    notes = [
        f"From the leaf upward the first frame with a rule decides (rules version {tax.rules.version}).",
        "Allocation and copies count to their caller where that is of the tax. Idle time is left out.",
    ]
    if own:
        notes.append("A function of the program's own file with no other rule is application.")
    return notes


FIGURES = (Figure("F20", "RPC cycle tax", "4.1", compute),)
