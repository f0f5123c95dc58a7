"""The report's page in a headless Chromium without a network: its bytes, its time to open, what it asks for."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from scotfree.study.analysis.study import Study
from scotfree.study.engine.duck import DuckEngine
from scotfree.study.figures.result import Coverage
from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.report.write import write_report
from scotfree.study.store import Store
from scotfree.study.trouble import StudyError

_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_TIMES = """() => {
  const mark = (name) => performance.getEntriesByName(name)[0].startTime / 1e3;
  const [opened] = performance.getEntriesByType("navigation");
  return {load_s: opened.loadEventEnd / 1e3, seen_s: mark("charts-seen"), all_s: mark("charts-all"),
    charts: document.querySelectorAll(".chart svg").length,
    failed: document.querySelectorAll('.chart[data-drawn="failed"]').length};
}"""


def measure(arm: str, settings: dict[str, Any]) -> dict[str, float]:
    """One opening of the page of a generated fleet, at a width; `arm` says nothing more."""
    page, complete, figures = _page(int(settings["calls"]), int(settings["methods"]))
    found = _open(page, int(settings["width"]))
    found |= {"bytes": float(page.stat().st_size), "figures": figures, "figures_incomplete": figures - complete}
    found["open_s"] = max(found["load_s"], found["seen_s"])
    return found


def _page(calls: int, methods: int) -> tuple[Path, int, int]:
    """Made once for all arms and repetitions; with how many figures are complete, and are."""
    base = Path(os.environ.get("SCOT_BENCH_FOLDER", tempfile.gettempdir()))
    folder = base / f"scotfree-bench-report-{calls}-{methods}"
    page, counted = folder / "report.html", folder / "figures.txt"
    if not counted.exists():
        shutil.rmtree(folder, ignore_errors=True)
        generate(folder / "fleet", FleetOptions(spans=calls, methods=methods))
        store = Store.open(folder / "fleet")
        computed = write_report(Study(store, DuckEngine(store)), page)
        complete = sum(each.result.coverage == Coverage.COMPLETE for each in computed)
        counted.write_text(f"{complete} {len(computed)}")
    complete, figures = map(int, counted.read_text().split())
    return page, complete, figures


def _open(page: Path, width: int) -> dict[str, float]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only who measures has it

    chromium = shutil.which("chromium")
    if chromium is None:
        raise StudyError("open a report: there is no chromium", "Debian: apt-get install chromium")
    asked: list[str] = []
    with sync_playwright() as driver, driver.chromium.launch(executable_path=chromium, args=_ARGUMENTS) as browser:
        context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
        view = context.new_page()
        view.on("request", lambda request: asked.append(request.url))
        view.goto(page.as_uri())
        view.wait_for_selector("html[data-charts=all]", state="attached", timeout=120_000)
        times = {name: float(value) for name, value in view.evaluate(_TIMES).items()}
    # The page itself is not asked of a network.
    return {**times, "requests": float(len([url for url in asked if url != page.as_uri()]))}
