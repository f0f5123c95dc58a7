"""The page: hostile names stay text, absent figures say what they lack, the policy holds its scripts only."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made_report import made_report

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures import all_figures
from scotfree.study.figures.overview import Group, Said
from scotfree.study.figures.result import Comparison, Coverage, Figure, Result, absent
from scotfree.study.report import page
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.charts import DRAW, drawn, theme
from scotfree.study.report.ledger import Ledger, Line
from scotfree.study.report.overview import Listed, Overview, Step
from scotfree.study.report.write import parquet_folder, write_report
from scotfree.study.store import Manifest, Store, write_manifest, write_table
from scotfree.study.trouble import StudyError

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{ 7 * 7 }}"
ABOUT = page.About("0", dt.datetime(2020, 1, 1, tzinfo=dt.UTC), EVIL, EVIL, "duckdb", EVIL)


class Parsed(HTMLParser):
    """Elements, attributes and text as a browser would see them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def _hostile() -> str:
    names = {"service": [EVIL] * 40, "method": [EVIL] * 40}
    methods = pa.table({**names, **{f"p{p:02}": [float(p)] * 40 for p in (1, 10, 25, 50, 75, 90, 95, 99)}})
    result = Result(
        Coverage.PARTIAL, {"methods": methods}, [EVIL], [EVIL, EVIL], [Comparison(EVIL, 1.0, 2.0, EVIL)], [EVIL]
    )
    figure = Figure("F2", EVIL, EVIL, lambda _: result)
    ledger = Ledger(1, 1, 0, 0, 1, 1, [Line(EVIL, EVIL, 1, True, 1, EVIL)], 0)
    return page.render([Computed(figure, result, 0.0)], ledger, ABOUT, _hostile_first())


def _hostile_first() -> Overview:
    times = {"p50_ns": 1.0, "p95_ns": 1.0, "p99_ns": None, "has_p95": True, "has_p99": False}
    row = {"name": EVIL, "of": EVIL, "samples": 1, "calls": 1, "errors": 0, "share": 1.0, "tax": None}
    listed = Listed([{**row, **times, "is_client": False, "error_share": 0.0}])
    said = Group(EVIL, [Said(EVIL, EVIL, "F2")])
    return Overview([(EVIL, EVIL)], [said], [Step(EVIL, EVIL)], listed, listed)


def test_hostile_names_stay_text() -> None:
    parsed = Parsed(_hostile())
    tags = [tag for tag, _ in parsed.tags]
    assert tags.count("script") == 3
    assert "img" not in tags
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    # Seen by the reader as it was sent.
    assert sum(EVIL in text for text in parsed.text) >= 17
    data = next(text for text in parsed.text if text.startswith('{"specs"'))
    assert json.loads(data)["sets"]["f2-ranked"]["method"] == [EVIL] * 40


def test_nothing_in_the_page_is_from_elsewhere() -> None:
    parsed = Parsed(made_report().page.read_text())
    links = [attributes.get(name) for _, attributes in parsed.tags for name in ("src", "href", "srcset", "action")]
    assert {link for link in links if link and not link.startswith("#")} == {"data:,"}


def test_the_policy_allows_the_pages_scripts_and_no_other() -> None:
    html = made_report().page.read_text()
    parsed = Parsed(html)
    policy = next(a["content"] for t, a in parsed.tags if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    allowed = re.search("script-src ([^;]*);", policy)
    assert allowed
    scripts = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert allowed[1].split() == [f"'sha256-{digest}'" for digest in hashes]
    assert "unsafe-eval" not in policy


def test_an_absent_figure_says_what_it_lacks() -> None:
    lacking = Computed(Figure("F2", "Time", "2.2", lambda _: absent()), absent("the moon"), 0.0)
    html = page.render([lacking], Ledger(0, 0, 0, 0, 0, 0, [], 0), ABOUT)
    assert '<tr><th scope="row"><b title="Time">F2</b></th><td>the moon</td></tr>' in html
    assert 'class="chart"' not in html and 'id="F2"' not in html


def test_every_figure_with_tables_has_charts() -> None:
    without = [e.figure.number for e in made_report().computed if e.result.tables and e.figure.number not in DRAW]
    assert without == []


def test_every_chart_names_its_data() -> None:
    for each in made_report().computed:
        for chart in DRAW[each.figure.number](each.result) if each.result.tables else []:
            named = set(re.findall(r'"name": "([^"]*)"', json.dumps(chart.compiled())))
            assert set(chart.data) <= named, chart.about
            assert all(table.num_rows for table in chart.data.values()), chart.about


def test_every_chart_follows_the_schema_and_is_drawn_as_if_it_were_checked() -> None:
    for each in made_report().computed:
        checked = DRAW[each.figure.number](each.result) if each.result.tables else []
        for chart, unchecked in zip(
            checked, drawn(each.figure.number, each.result) if checked else [], strict=True
        ):
            chart.spec.to_dict(validate=True)
            assert unchecked.compiled() == chart.compiled(), chart.about


def test_each_table_lies_beside_the_page() -> None:
    made = made_report()
    folder = parquet_folder(made.page)
    index = json.loads((folder / "index.json").read_text())
    assert [entry["figure"] for entry in index["figures"]] == [figure.number for figure in all_figures()]
    files = {name for entry in index["figures"] for name in entry["files"]} | set(index["tables"])
    tables = ("methods", "edges", "critical_path", "critical_path_stacks")
    assert index["tables"] == [f"{name}.parquet" for name in tables]
    assert files == {path.name for path in folder.glob("*.parquet")}
    each = next(each for each in made.computed if each.figure.number == "F2")
    assert pq.read_table(folder / "F2.methods.parquet").equals(each.result.tables["methods"])


def _empty_store(folder: Path) -> Store:
    write_table(schema.METHOD.empty_table(), folder / "methods.parquet")
    write_table(schema.TROUBLE.empty_table(), folder / "trouble.parquet")
    write_manifest(folder, Manifest())
    return Store.open(folder)


def test_a_store_without_calls_gives_a_page_of_what_is_lacking(tmp_path: Path) -> None:
    store = _empty_store(tmp_path / "store")
    output = tmp_path / "report.html"
    computed = write_report(Study(store, DuckEngine(store)), output)
    assert {each.result.coverage for each in computed} == {Coverage.ABSENT}
    assert all(each.result.missing for each in computed)
    html = output.read_text()
    missing = html[html.index('<section id="missing"') : html.index('<section id="ledger"')]
    named = re.findall(r'<b title="[^"]*">([FTS][\d.]+)</b>', missing)
    assert sorted(named) == sorted(each.figure.number for each in computed)
    assert "No call is recorded as failed." in html and "no edge has 5 successful calls" in html


def test_a_page_is_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "report.html"
    old = "<title>The RPC tax of 5 calls</title>"
    output.write_text(old)
    store = _empty_store(tmp_path / "store")
    monkeypatch.setattr(page, "render", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(Study(store, DuckEngine(store)), output)
    assert output.read_text() == old
    output.write_text("measured calls")
    with pytest.raises(StudyError, match="it is there, and no report"):
        write_report(Study(store, DuckEngine(store)), output)
    assert output.read_text() == "measured calls"


# Machado, Oliveira, Fernandes 2009: linear RGB as seen without one kind of cone.
_SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
}
# Two colours are told apart without effort from about this distance in CIELAB.
_APART_MIN = 15.0
_TO_XYZ = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))


def _times(matrix: tuple[tuple[float, ...], ...], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _lab(colour: str, sight: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    seen = [min(1.0, max(0.0, part)) for part in _times(_SIGHTS[sight], linear)]
    xyz = [part / white for part, white in zip(_times(_TO_XYZ, seen), (0.9505, 1.0, 1.089), strict=True)]
    f = [part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in xyz]
    return [116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])]


@pytest.mark.parametrize("sight", list(_SIGHTS))
def test_stages_are_told_apart_by_who_sees_fewer_colours(sight: str) -> None:
    labs = [(stage, _lab(theme.STAGE_COLOURS[stage], sight)) for stage in schema.STAGES]
    for at, (stage, one) in enumerate(labs):
        for other, two in labs[at + 1 :]:
            apart = sum((a - b) ** 2 for a, b in zip(one, two, strict=True)) ** 0.5
            assert apart >= _APART_MIN, (stage, other)
