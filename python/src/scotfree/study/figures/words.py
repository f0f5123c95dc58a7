"""Numbers and names in sentences."""

from __future__ import annotations

_STEPS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"))


def percent(share: float) -> str:
    """58 %, 2.0 %, 0.43 %: two digits that mean something."""
    value = share * 100
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2
    return f"{value:.{digits}f} %"


def duration(ns: float) -> str:
    """3.2 ms: three digits, in the unit that reads best."""
    for size, unit in _STEPS:
        if abs(ns) >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns:.3g} ns"


def called(service: str, method: str) -> str:
    """A method as one word: a fully qualified one stands alone, and a service for one without a name."""
    return method if service in method else f"{service} {method}".strip()


def listed(names: list[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def size(count: float) -> str:
    """12.3 kB: three digits, in decimal units as the paper's."""
    for step, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(count) >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count:.3g} B"


def number(value: float) -> str:
    """A plain number of what is counted."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
