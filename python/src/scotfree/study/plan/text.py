"""A plan for a terminal: sentences first, then the table, then what was refused."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from scotfree.study.figures.words import called, counted, duration, percent, span
from scotfree.study.plan.forecasts import Plan, Refusal
from scotfree.study.plan.outcome import Outcome
from scotfree.study.plan.price import Percentile, Price

_SENTENCES_MAX: Final = 8
_NAMED_MAX: Final = 3
# Below half a percent nothing is to be told.
_RIGHT: Final = 0.005
_HEAD: Final = ("remedy", "method", "", "now", "forecast", "95 % interval", "gain", "of all time")
NONE_PAYS: Final = "None pays: no forecast's interval excludes that nothing is gained."
NONE_PRICED: Final = "Nothing could be priced, so whether a remedy pays is not known; missing:"


def plan(plan: Plan) -> str:
    """The whole text."""
    looked = f"{counted(plan.methods, 'method')} looked at, {percent(plan.time_share)} of the time of all calls."
    if not plan.prices:
        return "\n".join([NONE_PRICED, *(f"- {one}" for one in _refused(plan)), looked, *_unknown(plan)])
    blocks = ["\n".join([*sentences(plan), looked])]
    blocks.append("\n".join(table([_HEAD, *(row for price in plan.prices for row in _rows(price))])))
    return "\n\n".join([*blocks, *(["\n".join(notes)] if (notes := _notes(plan)) else [])])


def sentences(plan: Plan) -> list[str]:
    """What pays, the most first, or that none does; and what would harm."""
    paying = [one for one in plan.prices if one.pays]
    harming = sorted((one for one in plan.prices if one.harms), key=lambda one: -_worst(one).growth)
    gains = [_sentence(one) for one in paying[:_SENTENCES_MAX]] or [NONE_PAYS]
    return gains + [_warning(one) for one in harming[:_SENTENCES_MAX]]


def _worst(price: Price) -> Percentile:
    """Where it harms most."""
    return max((one for one in price.percentiles if one.harms), key=lambda one: one.growth)


def _warning(price: Price) -> str:
    one = _worst(price)
    return (
        f"{price.remedy} would do harm: it takes the {_p(one)} of {called(price.service, price.method)} from "
        f"{duration(one.now_ns)} to {duration(one.forecast_ns)}, {_gain(one)}."
    )


def _sentence(price: Price) -> str:
    best = max((one for one in price.percentiles if one.pays), key=lambda one: one.gain_ns / max(one.now_ns, 1.0))
    name = called(price.service, price.method)
    return (
        f"{price.remedy} takes the {_p(best)} of {name} from {duration(best.now_ns)} to "
        f"{duration(best.forecast_ns)}, {_gain(best)}; "
        f"{percent(price.saved_share)} of the time of all calls."
    )


def _rows(price: Price) -> Iterator[tuple[str, ...]]:
    # Of what does neither one row says so.
    for one in price.percentiles if price.pays or price.harms else (price.at(0.95),):
        yield (
            price.remedy,
            called(price.service, price.method),
            _p(one),
            duration(one.now_ns),
            duration(one.forecast_ns),
            f"{duration(one.low_ns)} to {duration(one.high_ns)}",
            _gain(one),
            percent(price.saved_share),
        )


def _gain(one: Percentile) -> str:
    """With its own interval where it is one way or the other: that decides, not the forecast's."""
    if one.loses:
        within = span(duration(-one.gain_high_ns), duration(-one.gain_low_ns))
        return f"{duration(-one.gain_ns)} later ({within})"
    if one.pays:
        return f"{duration(one.gain_ns)} sooner ({span(duration(one.gain_low_ns), duration(one.gain_high_ns))})"
    return f"{duration(one.gain_ns)} (may be none)" if one.gain_ns > 0 else "none"


def _p(one: Percentile | Outcome) -> str:
    return f"P{round(one.p * 100)}"


def outcomes(found: list[Outcome]) -> str:
    """The forecast beside what came of it."""
    rows = [
        (
            called(one.service, one.method),
            _p(one),
            duration(one.before_ns),
            duration(one.forecast_ns),
            duration(one.measured_ns),
            _error(one),
        )
        for one in found
    ]
    head = ("method", "", "before", "forecast", "measured", "the forecast is")
    return "\n".join([f"{found[0].remedy} was applied:", *table([head, *rows])])


def _error(one: Outcome) -> str:
    off = (
        "right"
        if abs(one.error) < _RIGHT
        else f"{percent(abs(one.error))} too {'high' if one.error > 0 else 'low'}"
    )
    return f"{off}{'' if one.is_within else ', and its interval misses'}"


def table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns side by side; the first row is the head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [lines[0], "-" * min(max(map(len, lines)), 115), *lines[1:]]


def _notes(plan: Plan) -> list[str]:
    notes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for price in plan.prices:
        for note in price.notes:
            notes[price.remedy, note].append(called(price.service, price.method))
    lines = [f"{remedy}, {_some(names)}: {note}." for (remedy, note), names in notes.items()]
    return [*lines, *_refused(plan), *_unknown(plan)]


def _refused(plan: Plan) -> list[str]:
    refused: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in plan.refusals:
        refused[one.remedy, one.reason].append(_name(one))
    return [f"{remedy}, {_some(names)}: not priced: {why}." for (remedy, why), names in refused.items()]


def _unknown(plan: Plan) -> list[str]:
    """Remedies that there are, and no forecast of them."""
    return [
        f"{name}: not priced yet: there is no forecast of it ({about})." for name, about in plan.unpriced.items()
    ]


def _name(one: Refusal) -> str:
    return called(one.service, one.method)


def _some(names: list[str]) -> str:
    shown, rest = names[:_NAMED_MAX], len(names) - _NAMED_MAX
    return ", ".join(shown) + (f" and {counted(rest, 'other')}" if rest > 0 else "")
