"""What a chart is: a Vega-Lite specification over named data, and the pieces that all charts share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np
import pyarrow as pa

from scotfree.study.report.charts import theme

HEIGHT = 280
_UNIT_NS = (
    "datum.value === 0 ? '0' : datum.value >= 1e9 ? format(datum.value / 1e9, '~g') + ' s' : datum.value >= 1e6 ? "
)
_UNIT_NS += (
    "format(datum.value / 1e6, '~g') + ' ms' : datum.value >= 1e3 ? format(datum.value / 1e3, '~g') + ' µs' : "
)
_UNIT_NS += "format(datum.value, '~g') + ' ns'"
_UNIT_BYTES = "datum.value === 0 ? '0' : datum.value >= 1e9 ? format(datum.value / 1e9, '~g') + ' GB' : "
_UNIT_BYTES += "datum.value >= 1e6 ? "
_UNIT_BYTES += "format(datum.value / 1e6, '~g') + ' MB' : datum.value >= 1e3 ? "
_UNIT_BYTES += "format(datum.value / 1e3, '~g') + ' kB' : format(datum.value, '~g') + ' B'"
# How an axis says its values, by a column's unit; Vega expressions.
LABELS = {
    "ns": _UNIT_NS,
    "bytes": _UNIT_BYTES,
    "share": "format(datum.value * 100, '~g') + ' %'",
    "count": "datum.value >= 1e4 ? format(datum.value, '~s') : format(datum.value, '~g')",
    "ratio": "format(datum.value, '~g')",
    "cycles": "format(datum.value, '~g')",
}


# A name as two lines: broken at the first space, or else behind the first dash or underscore.
_BROKEN = r"split(replace(datum.label, regexp('^(\\S+) |^([^-_]+[-_])'), '$1$2\\n'), '\\n')"


@dataclass(frozen=True)
class Chart:
    """One drawing of a figure. Its data are tables by the names that the specification refers to."""

    # What it shows, as a caption and for who cannot see it.
    about: str
    spec: Any
    data: dict[str, pa.Table]
    height: int = HEIGHT
    # Small ones stand side by side.
    is_small: bool = False
    # The data to list under the chart; the first if not said.
    listed: Sequence[str] = field(default_factory=list)

    def compiled(self) -> dict[str, Any]:
        """The specification, as wide as its place; unchecked, as in `drawn`."""
        return dict(self.spec.properties(width="container", height=self.height).to_dict(validate=False))


def published(name: str) -> Any:
    """The mark of a published value: it is seen on every ground."""
    return over(name).mark_point(
        shape="diamond", size=110, filled=True, color=theme.PUBLISHED, stroke="white", opacity=1
    )


def over(name: str) -> alt.Chart:
    """A chart over the page's data of that name."""
    return alt.Chart(alt.NamedData(name))


def axis(unit: str, title: str | None, **more: Any) -> alt.Axis:
    """An axis that says its unit with each value."""
    return alt.Axis(title=title, labelExpr=LABELS[unit], **more)


def tip(field_: str, unit: str, title: str | None = None) -> alt.Tooltip:
    """A value in a tooltip, with its unit; units are keys of `LABELS`."""
    return alt.Tooltip(f"{field_}:Q", formatType="quantity", format=unit, title=title or field_)


def names(field_: str, order: Any = None, *, longest: int = 20, grid: bool = False) -> alt.Y:
    """A vertical axis of names; on a narrow page those beyond so many letters break once, not to be cut."""
    axis = alt.Axis(title=None, ticks=False, domain=False, grid=grid, labelOverlap=False, labelLineHeight=11)
    axis.labelExpr = f"width < 360 && length(datum.label) > {longest} ? {_BROKEN} : datum.label"
    return alt.Y(f"{field_}:N", sort=order, axis=axis)


def powers(*columns: Iterable[float | None]) -> tuple[list[float], list[float]]:
    """Of a logarithmic axis: its domain, and the powers of ten in it (every second or third if they are many)."""
    known = [value for column in columns for value in column if value is not None and value > 0]
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    first, last = math.floor(math.log10(low)), max(math.ceil(math.log10(high)), math.floor(math.log10(low)) + 1)
    # A decade that is hardly begun is not shown whole.
    domain = [max(low * 0.8, 10.0**first), min(high * 1.25, 10.0**last)]
    if domain[1] / domain[0] < 10:
        domain = [10.0**first, 10.0**last]
    step = max(1, math.ceil((last - first) / 8))
    ticks = [float(10.0**power) for power in range(first, last + 1, step)]
    return domain, [tick for tick in ticks if domain[0] <= tick <= domain[1]]


def log_x(field_: str, unit: str, title: str, domain: tuple[list[float], list[float]], **more: Any) -> alt.X:
    """A logarithmic horizontal axis."""
    scale = alt.Scale(type="log", domain=domain[0], nice=False, clamp=True)
    return alt.X(f"{field_}:Q", scale=scale, axis=axis(unit, title, values=domain[1]), **more)


def log_y(field_: str, unit: str, title: str, domain: tuple[list[float], list[float]], **more: Any) -> alt.Y:
    """A logarithmic vertical axis."""
    scale = alt.Scale(type="log", domain=domain[0], nice=False, clamp=True)
    return alt.Y(f"{field_}:Q", scale=scale, axis=axis(unit, title, values=domain[1]), **more)


def positive(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The table with values that a logarithmic axis cannot show as null."""
    for name in names:
        values = table[name].to_numpy(zero_copy_only=False).astype(float)
        shown = pa.array(np.where(values > 0, values, np.nan), from_pandas=True)
        table = table.set_column(table.column_names.index(name), name, shown)
    return table
