"""The page: one HTML file with all that it needs, which asks the network for nothing.

Its policy allows two scripts, by their hashes: the chart library and the page's own. Expressions of charts are
interpreted, not compiled, so that no `unsafe-eval` is needed. All text from data goes through Jinja's escaping or,
as JSON without `<`, through the page's script, which sets text and never markup.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import orjson
from markupsafe import Markup

from scotfree.study.figures import findings
from scotfree.study.figures.result import Coverage
from scotfree.study.figures.words import UNNAMED, counted
from scotfree.study.report import bins, library, text
from scotfree.study.report.catalogue import Computed, key_of
from scotfree.study.report.ledger import Ledger
from scotfree.study.report.overview import Overview
from scotfree.study.trouble import printable

if TYPE_CHECKING:
    from scotfree.study.report.charts import Chart

# Control characters but for white space; marks of the direction of writing.
_UNSHOWN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
# Rows of a table under a chart; the Parquet beside the page has all.
LISTED_MAX = 500
# Sentences and comparisons of a figure that stand open; the others unfold.
SHOWN_MAX = 8


@dataclass(frozen=True)
class About:
    """Where a report is from."""

    version: str
    made: dt.datetime
    store: str
    parquet: str
    engine: str
    command: str = ""
    inputs: Sequence[dict[str, Any]] = field(default_factory=tuple)


def render(computed: Sequence[Computed], ledger: Ledger, about: About, first: Overview | None = None) -> str:
    """The whole page; `first` is what it says before its figures."""
    drawn = {each.key: _charts(each) for each in computed}
    scripts = [*([library.script()] if any(drawn.values()) else []), asset("page.js")]
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            style=asset("page.css"),
            scripts=scripts,
            policy=policy(*scripts),
            data=_data(drawn),
            first=first or Overview(),
            figures=[_figure(each, drawn[each.key]) for each in computed if _is_shown(each)],
            unsaid=_unsaid(computed),
            coverage={kind.value: sum(each.result.coverage == kind for each in computed) for kind in Coverage},
            ledger=ledger,
            about=about,
        )
    )


def _is_shown(each: Computed) -> bool:
    return each.result.coverage != Coverage.ABSENT


def _unsaid(computed: Sequence[Computed]) -> list[tuple[list[tuple[str, str]], list[str]]]:
    """Figures that are not in the page, by number and title, with what they wait for."""
    titles = {each.figure.number: each.figure.title for each in computed}
    waiting = findings.unsaid({each.figure.number: each.result for each in computed})
    return [([(number, titles[number]) for number in numbers], missing) for numbers, missing in waiting]


def policy(*scripts: str) -> str:
    """The page's Content-Security-Policy: nothing from anywhere, these scripts only."""
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    # Styles are set by the chart library on elements of its own; pictures are those that it draws.
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _charts(each: Computed) -> list[Chart]:
    if each.result.coverage == Coverage.ABSENT:
        return []
    # What draws stands on Altair, which a page without charts does not wait for.
    from scotfree.study.report.charts import drawn  # noqa: PLC0415

    return drawn(each.figure.number, each.result)


def _figure(each: Computed, charts: list[Chart]) -> dict[str, Any]:
    result = each.result
    return {
        "key": each.key,
        "number": each.figure.number,
        "title": each.figure.title,
        "section": each.figure.section,
        "shown_max": SHOWN_MAX,
        "findings": result.findings,
        "coverage": result.coverage.value,
        "missing": result.missing,
        "comparisons": [
            {
                "what": comparison.what,
                "published": text.published(comparison),
                "measured": text.quantity(comparison.measured, comparison.unit),
                "beside": text.beside(comparison),
            }
            for comparison in result.comparisons
        ],
        "notes": result.notes,
        "charts": [
            {"about": chart.about, "height": chart.height, "small": chart.is_small, "id": f"{each.key}-{number}"}
            for number, chart in enumerate(charts)
        ],
    }


def _data(drawn: dict[str, list[Chart]]) -> str:
    """Specifications, data sets once each, and themes, as JSON that cannot end a script element."""
    sets: dict[str, dict[str, list[object]]] = {}
    specs: dict[str, dict[str, Any]] = {}
    for key, charts in drawn.items():
        for number, chart in enumerate(charts):
            for name, table in chart.data.items():
                if name not in sets:
                    sets[name] = bins.columns(table)
            listed = list(chart.listed) or list(chart.data)[:1]
            specs[f"{key}-{number}"] = {"spec": chart.compiled(), "sets": list(chart.data), "listed": listed}
    found = {"specs": specs, "sets": sets, "themes": _themes() if specs else {}, "listed_max": LISTED_MAX}
    return orjson.dumps(found, option=orjson.OPT_SERIALIZE_NUMPY).decode().replace("<", "\\u003c")


def _themes() -> dict[str, dict[str, Any]]:
    # As in `_charts`.
    from scotfree.study.report.charts import theme  # noqa: PLC0415

    return theme.THEMES


def asset(name: str) -> str:
    """A file that pages are made of."""
    return (resources.files("scotfree.study.report") / "assets" / name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Text from outside without what cannot be written, and without what turns the text around it."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return _UNSHOWN.sub("\ufffd", printable(value))


@cache
def environment() -> jinja2.Environment:
    """Templates that escape whatever they are given."""
    loader = jinja2.FunctionLoader(asset)
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.globals["unnamed"] = UNNAMED
    environment.filters["count"] = text.count
    environment.filters["counted"] = counted
    environment.filters["unbroken"] = text.unbroken
    environment.filters["key"] = key_of
    environment.filters["ns"] = lambda value: text.quantity(value, "ns")
    environment.filters["share"] = text.share
    environment.filters["bytes"] = lambda value: text.quantity(value, "bytes")
    return environment
