"""The pages of `scot study serve` in a browser without JavaScript: sorted by links, no wider than the screen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from chromium import TESTS, chromium

from scotfree.study.fleet import generate
from scotfree.study.fleet.options import FleetOptions
from scotfree.study.report.serve.queries import Queries
from scotfree.study.report.serve.server import serve
from scotfree.study.store import Store

pytestmark = TESTS


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("serve") / "fleet"
    generate(folder, FleetOptions(spans=5_000, methods=30, partitions=2, metrics=False, profiles=False))
    running = serve(Queries(Store.open(folder)), 0)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as launched:
        yield launched


def values(page: Any, title: str, at: int) -> list[str]:
    found: list[str] = page.locator(f"[aria-label='{title}'] tbody tr > :nth-child({at})").all_inner_texts()
    return found


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_from_the_fleet_down_by_links_alone(browser: Any, address: str, width: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, java_script_enabled=False
    )
    page = context.new_page()

    def fits() -> bool:
        # The browser's own measure, since the page may not be asked.
        size = context.new_cdp_session(page).send("Page.getLayoutMetrics")["cssContentSize"]
        return bool(size["width"] <= width)

    page.goto(address)
    assert fits()
    page.get_by_role("link", name="Calls").click()
    calls = [int(each.replace(",", "")) for each in values(page, "All services", 2)]
    assert calls == sorted(calls)
    page.get_by_role("link", name="Name").click()
    assert values(page, "All services", 1) == sorted(values(page, "All services", 1))
    page.locator("tbody a").first.click()
    assert fits()
    page.locator("tbody a").first.click()
    page.get_by_role("heading", name="The critical path").wait_for()
    assert fits()
    page.locator("tbody a[href^='/trace']").first.click()
    page.get_by_role("heading", name="The calls of this trace").wait_for()
    assert fits()
    context.close()
