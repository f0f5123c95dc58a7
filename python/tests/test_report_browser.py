"""The page in a real browser without a network: every chart is drawn, at both widths and in both themes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import TESTS, chromium
from made_report import Made, made_report
from small_store import spans, study_of

from scotfree.study.report import page as report_page
from scotfree.study.report.write import write_report

pytestmark = TESTS
PAGE_BYTES_MAX = 5_000_000
# Marks that a chart draws: an axis alone is none.
MARKS = ".role-mark path, .role-mark line, .role-mark text"


@dataclass
class Seen:
    """A page, with what it asked for and complained of."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def made() -> Made:
    return made_report()


@contextmanager
def opened(
    browser: Any, path: Path, *, width: int = 1280, scheme: str = "light", charts: str = "", zone: str = "UTC"
) -> Iterator[Seen]:
    """The page at a width, charts in view drawn or `all`; what it asks of a network is refused and noted."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True, timezone_id=zone
    )
    seen = Seen(context.new_page())

    def route(asked: Any) -> None:
        if asked.request.url == path.as_uri():
            asked.continue_()
        else:
            seen.requests.append(asked.request.url)
            asked.abort()

    context.route("**/*", route)
    seen.page.on(
        "console", lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else 0
    )
    seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    seen.page.goto(path.as_uri())
    wanted = f"html[data-charts={charts}]" if charts else "html[data-charts]"
    seen.page.wait_for_selector(wanted, state="attached", timeout=120_000)
    yield seen
    context.close()


def drawn(chart: Any) -> int:
    """Marks of a chart that have an extent."""
    return int(
        chart.evaluate(
            "(chart, marks) => [...chart.querySelectorAll(marks)].filter((mark) => {"
            "const box = mark.getBBox(); return box.width + box.height > 0; }).length",
            MARKS,
        )
    )


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_every_figure_is_drawn_without_a_network(browser: Any, made: Made, width: int, scheme: str) -> None:
    with opened(browser, made.page, width=width, scheme=scheme, charts="all") as seen:
        for each in made.computed:
            charts = seen.page.query_selector_all(f"#{each.key} .chart")
            assert bool(charts) == bool(each.result.tables), each.figure.number
            for chart in charts:
                where = chart.get_attribute("data-chart")
                assert drawn(chart) > 0, where
                box = chart.query_selector("svg").bounding_box()
                assert 200 < box["width"] <= width, where
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.requests == []
        assert seen.complaints == []


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of plain traces: of two methods, without a stage."""
    folder = tmp_path_factory.mktemp("plain")
    at = np.arange(200)
    calls = {
        "total_ns": 3_000_000 + at * 1_000,
        "server_app_ns": 1_000_000 + at,
        "client_service": ["Front"] * 200,
    }
    methods = np.where(at % 2, "Get", "Put").tolist()
    output = folder / "report.html"
    write_report(study_of(folder / "shop.store", spans(**calls, method=methods)), output)
    return output


def _place(seen: Seen, part: str) -> tuple[float, float]:
    """The upper and the lower edge of a part of the page."""
    box = seen.page.query_selector(part).bounding_box()
    return float(box["y"]), float(box["y"] + box["height"])


def test_plain_traces_fill_the_first_screen(browser: Any, plain: Path) -> None:
    with opened(browser, plain) as seen:
        lower = [_place(seen, part)[1] for part in ("h1", "#scope", "#findings", "#next")]
        assert max(lower) <= 800
        assert "Front \u2192 Cart Put" in seen.page.inner_text("#findings")
        assert _place(seen, "#scope")[0] < _place(seen, "#findings")[0] < _place(seen, "#methods")[0]
        assert len(seen.page.query_selector_all("#edges tbody tr")) == 2
        assert seen.complaints == []


def test_on_a_narrow_page_the_parts_are_listed_last(browser: Any, plain: Path) -> None:
    with opened(browser, plain, width=360, scheme="dark") as seen:
        assert _place(seen, "#scope")[0] < 200
        assert _place(seen, "#parts")[0] > _place(seen, "#provenance")[0]
        assert seen.page.is_visible(".to-parts")
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 360
    with opened(browser, plain) as seen:
        assert not seen.page.is_visible(".to-parts")


LABELS = """() => [...document.querySelectorAll(".chart svg")].flatMap((svg) => {
  const place = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const box = text.getBoundingClientRect();
    return text.textContent.endsWith("\u2026") || box.left < place.left - 1 || box.right > place.right + 1;
  }).map((text) => text.textContent);
})"""


def test_no_label_is_cut_on_a_narrow_page(browser: Any, made: Made) -> None:
    with opened(browser, made.page, width=360, charts="all") as seen:
        assert seen.page.evaluate(LABELS) == []
        # The plant: a name that is too long for its axis is cut, and seen to be.
        seen.page.evaluate("document.querySelector('#F8 svg .role-axis-label text').textContent = 'x'.repeat(90)")
        assert seen.page.evaluate(LABELS) == ["x" * 90]


# How often the mouse is put on a mark before its tooltip is taken to be none.
HOVERS_MAX = 200


def in_view(seen: Seen, figure: str) -> None:
    """Scrolls to a figure, and waits for its first chart."""
    seen.page.query_selector(f"#{figure} .chart").scroll_into_view_if_needed()
    seen.page.wait_for_selector(f"#{figure} .chart[data-drawn]")


def test_tooltips_say_their_unit(browser: Any, made: Made) -> None:
    with opened(browser, made.page) as seen:
        in_view(seen, "F8")
        said = seen.page.locator("#vg-tooltip-element.visible", has_text=re.compile(r"value:?\s*[\d.]+ %"))

        def is_said() -> bool:
            # Each waits until the mark stands still; charts that are drawn above meanwhile move it from the mouse.
            seen.page.hover("#F8 .mark-rect.role-mark path >> nth=0")
            return bool(said.count())

        assert any(is_said() for _ in range(HOVERS_MAX)), seen.page.inner_text("#vg-tooltip-element")


def test_half_hours_are_those_of_utc_wherever_the_page_is_read(browser: Any, made: Made) -> None:
    read = []
    for zone in ("UTC", "Asia/Tokyo"):
        with opened(browser, made.page, zone=zone) as seen:
            in_view(seen, "F18")
            labels = seen.page.query_selector("#F18 .chart").query_selector_all(".role-axis-label text")
            read.append([label.text_content() for label in labels])
    assert read[0] == read[1]
    assert any(re.fullmatch(r"\d\d:\d\d", label) for label in read[0])


def test_a_chart_without_data_counts_as_not_drawn(browser: Any, made: Made, tmp_path: Path) -> None:
    """The plant: a page whose data sets are all empty has axes, and no mark."""
    emptied = tmp_path / "empty.html"
    html = made.page.read_text()
    script = "for (const set of Object.values(page.sets)) for (const key of Object.keys(set)) set[key] = [];"
    before = "const places = [...document"
    assert html.count(before) == 1
    old = report_page.asset("page.js")
    new = old.replace(before, script + before)
    html = html.replace(old, new).replace(report_page._hash(old), report_page._hash(new))
    emptied.write_text(html)
    with opened(browser, emptied, charts="all") as seen:
        assert drawn(seen.page.query_selector("#F2 .chart")) == 0


def test_the_network_is_forbidden_by_the_page_itself(browser: Any, made: Made) -> None:
    with opened(browser, made.page) as seen:
        asked = "fetch('http://127.0.0.1:9/').then(() => 'reached', (error) => error.name)"
        assert seen.page.evaluate(asked) == "TypeError"
        assert any("Content Security Policy" in complaint for complaint in seen.complaints)
        assert seen.requests == []


def test_the_theme_changes_by_the_switch_and_charts_follow(browser: Any, made: Made) -> None:
    with opened(browser, made.page, scheme="light") as seen:
        ground = "getComputedStyle(document.body).backgroundColor"
        light = seen.page.evaluate(ground)
        seen.page.click("#theme")
        seen.page.click("#theme")
        seen.page.wait_for_selector(".chart[data-drawn=dark]")
        assert seen.page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert seen.page.evaluate(ground) != light


def test_the_keyboard_reaches_every_figure(browser: Any, made: Made) -> None:
    with opened(browser, made.page) as seen:
        reached: set[str] = set()
        for _ in range(2000):
            seen.page.keyboard.press("Tab")
            focused = seen.page.evaluate(
                "[document.activeElement.className, document.activeElement.closest('section')?.id]"
            )
            if not reached and focused[0] == "skip":
                assert seen.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
            reached.add(focused[1])
            if focused[1] == "provenance":
                break
        assert {each.key for each in made.computed if each.result.tables} <= reached


def test_a_charts_data_unfolds_as_a_table(browser: Any, made: Made) -> None:
    with opened(browser, made.page) as seen:
        details = seen.page.query_selector("#F2 details.data")
        assert details.query_selector("table") is None
        details.query_selector("summary").press("Enter")
        details.wait_for_selector("table")
        methods = next(each for each in made.computed if each.key == "F2").result.tables["methods"]
        assert len(details.query_selector_all("tbody tr")) == methods.num_rows > 0


def test_the_page_is_small(made: Made) -> None:
    assert made.page.stat().st_size <= PAGE_BYTES_MAX
