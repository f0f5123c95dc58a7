"""F1: how requests per cycle grow over time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from scotfree.study.analysis import growth
from scotfree.study.analysis.study import Study
from scotfree.study.figures import inputs
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, Row, absent
from scotfree.study.figures.words import counted, percent

# Section 2.2.
_PUBLISHED_YEAR: Final = 0.30
_PUBLISHED_IN_ALL: Final = 0.64
_PUBLISHED_DAYS: Final = 700
_YEAR_DAYS: Final = 365.25
# A week's rhythm, twice: below that a slope per year says nothing.
DAYS_MIN: Final = 14

Array = np.ndarray[Any, Any]


def annual_growth(days: Array, ratios: Array) -> float:
    """The growth per year of the straight line through the logarithms: 0.3 is 30 %."""
    slope = float(np.polyfit(days - days[0], np.log(ratios), 1)[0])
    return float(np.expm1(slope * _YEAR_DAYS))


def compute(study: Study) -> Result:
    """F1: per day requests per cycle, as a multiple of the first day's; the growth per year."""
    table = growth.daily(study)
    table = table.filter(pa.array(table["rps"].to_numpy() > 0, pa.bool_()))
    if table.num_rows == 0:
        return absent(inputs.GROWTH)
    days = table["day"].to_numpy().astype(float)
    ratios = table["rps"].to_numpy() / table["cycles"].to_numpy()
    relative = ratios / ratios[0]
    drawn = pa.table({"day": table["day"], "ratio": relative, "half_hours": table["windows"]})
    is_long = days[-1] - days[0] >= DAYS_MIN - 1 and len(days) >= DAYS_MIN
    year = annual_growth(days, ratios) if is_long else None
    in_all = float((1 + year) ** ((days[-1] - days[0]) / _YEAR_DAYS) - 1) if year is not None else None
    return Result(
        Coverage.COMPLETE if is_long else Coverage.PARTIAL,
        {"days": drawn},
        [] if is_long else [inputs.GROWTH],
        [_finding(year, int(days[-1] - days[0]) + 1)],
        [
            Comparison("growth of requests per cycle", _PUBLISHED_YEAR, year, "1/year", "about", Row("year")),
            Comparison(f"growth in all (published: {_PUBLISHED_DAYS} days)", _PUBLISHED_IN_ALL, in_all, "share"),
        ],
        [
            "Per day: the sum of requests per second over that of cycles per second, both as means of half hours; "
            "only half hours that have both.",
            "Growth: the straight line through the logarithms by least squares; in all: what that line gives over "
            "the days there are.",
        ],
    )


def _finding(year: float | None, days: int) -> str:
    if year is None:
        return f"Over {counted(days, 'day')} no growth per year can be told; {DAYS_MIN} days are needed."
    verb = "grow" if year >= 0 else "fall"
    return f"Requests per cycle {verb} by {percent(abs(year))} a year, over {counted(days, 'day')}."


FIGURES = (Figure("F1", "Requests per cycle over time", "2.2", compute),)
