"""Numbers as people read them: three significant digits, the unit that fits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from scotfree.study.figures.result import Comparison

_NS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))
_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_RELATIONS = {"<=": "≤ ", ">=": "≥ ", "about": "about ", "<": "< ", ">": "> "}
_RATIO_MIN = 0.001
_SHARE_MIN = 0.0001
_CYCLES = "cycles"
NONE = "\u2013"
_UNIT = re.compile(r"(?<=\d) (%|[nµm]?s|[kMG]?B|GB/s)(?!\w)")
# Thin and unbreakable, between a number and its unit.
_GAP = "\u202f"


def digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(places, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def quantity(value: float | None, unit: str) -> str:
    """A value of a `Comparison`'s unit."""
    if value is None or math.isnan(value):
        return NONE
    form = _FORMS.get(unit)
    return form(value) if form else f"{_counted(value)}{_GAP}{_singular(unit) if value == 1 else unit}"


def _singular(unit: str) -> str:
    return unit.removesuffix("s")


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    for step, unit in steps:
        # 999.6 µs is 1 ms, not 1000 µs.
        if abs(value) >= step * 0.9995:
            return f"{digits(value / step)}{_GAP}{unit}"
    return f"{digits(value)}{_GAP}{steps[-1][1]}"


def _counted(value: float) -> str:
    for step, letter in _LARGE:
        # 1000 methods, but 1 G traces: only what is below ten thousand is said whole.
        if abs(value) >= max(step * 0.9995, 9_995):
            return f"{digits(value / step)}{_GAP}{letter}"
    return digits(value)


_FORMS: dict[str, Callable[[float], str]] = {
    "ns": lambda value: _scaled(value, _NS),
    "bytes": lambda value: _scaled(value, _BYTES),
    "share": lambda value: f"{digits(value * 100)}{_GAP}%",
    "1/year": lambda value: f"{digits(value * 100)}{_GAP}% per year",
    "ratio": digits,
    # Normalized: of a unit that the paper does not give.
    _CYCLES: digits,
}


def published(comparison: Comparison) -> str:
    """The paper's value, with how it is meant."""
    text = quantity(comparison.published, comparison.unit)
    if text == NONE:
        return text
    source = " (read off a picture)" if comparison.is_read_off else ""
    return _RELATIONS.get(comparison.relation, "") + text + source


def beside(comparison: Comparison) -> str:
    """The user's value over the paper's; empty where there is none."""
    ours, theirs = comparison.measured, comparison.published
    if ours is None or not theirs or ours / theirs <= 0:
        return ""
    if comparison.unit == _CYCLES:
        # Units that may differ have no ratio.
        return ""
    ratio = ours / theirs
    # Zeros that must be counted are read by nobody.
    return f"below {_RATIO_MIN:g}\u00d7" if ratio < _RATIO_MIN else f"{digits(ratio)}\u00d7"


def share(value: float | None) -> str:
    """A share that is small said to be so: zeros that must be counted are read by nobody."""
    if value is not None and 0 < value < _SHARE_MIN:
        return "< " + quantity(_SHARE_MIN, "share")
    return quantity(value, "share")


def unbroken(sentence: str) -> str:
    """A sentence whose numbers stay on one line with their units."""
    return _UNIT.sub("\u00a0\\1", sentence)


def count(value: int) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,}"
