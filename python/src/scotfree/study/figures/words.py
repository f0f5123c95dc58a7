"""Numbers and names in sentences."""

from __future__ import annotations

import re
from typing import Final

# A method or a service whose name no record says.
UNNAMED = "(no name)"
_NS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
_BYTES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def percent(share: float) -> str:
    """58 %, 2.0 %, 0.43 %: two digits that mean something; nothing is 0 %."""
    value = share * 100
    if abs(value) < 0.005:
        return "0 %" if value == 0 else "less than 0.01 %"
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2
    return f"{value:.{digits}f} %"


def duration(ns: float) -> str:
    """3.2 ms: three digits, in the unit that reads best."""
    return _scaled(ns, _NS)


def span(low: str, high: str) -> str:
    """2.9 to 3.4 ms: the unit once if both have it."""
    number, _, unit = low.rpartition(" ")
    return f"{number} to {high}" if number and unit == high.rpartition(" ")[2] else f"{low} to {high}"


_LONG: Final = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def lasting(ns: int) -> str:
    """How long something went on: 2 days and 3 hours, 1 minute; below a minute as a duration."""
    seconds = ns // 10**9
    for at, (step, noun) in enumerate(_LONG):
        if seconds >= step:
            parts = [counted(seconds // step, noun)]
            if at + 1 < len(_LONG) and (rest := seconds % step // _LONG[at + 1][0]):
                parts.append(counted(rest, _LONG[at + 1][1]))
            return listed(parts)
    return duration(ns)


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    # 999.6 µs is 1 ms, not 1e+03 µs.
    step, unit = next((step for step in steps if abs(value) >= step[0] * 0.9995), steps[-1])
    return f"{_three(value / step)} {unit}"


def _three(value: float) -> str:
    """Three digits, and all of a whole number's: never an exponent for what is large."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def called(service: str, method: str) -> str:
    """A method as one word: a fully qualified one stands alone."""
    return method if method and _is_named(service, method) else f"{service} {method or UNNAMED}".strip()


def _is_named(service: str, method: str) -> bool:
    # As a word: a service `auth` is not named by `/oauth`.
    return re.search(rf"(?<![^\W_]){re.escape(service)}(?![^\W_])", method) is not None


def spoken(stage: str) -> str:
    """A stage's name in words."""
    return stage.replace("_", " ").replace("recv", "receive").replace("app", "application")


def listed(names: list[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def size(count: float) -> str:
    """12.3 kB: three digits, in decimal units as the paper's."""
    return _scaled(count, _BYTES)


def number(value: float) -> str:
    """A plain number of what is counted."""
    return _three(value)


def counted(count: int, noun: str) -> str:
    """So many of something."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
