"""The live counterparts: Prometheus reads the rules, the dashboard asks for what the rules record."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from scotfree.study.cli import main
from scotfree.study.report.monitoring import ALERTS, DASHBOARD_FILE, RECORDED, RULES_FILE

PROMTOOL = shutil.which("promtool")
SOURCES = Path(__file__).parents[2] / "crates"


@pytest.fixture
def written(tmp_path: Path) -> Path:
    assert main(["monitoring", "-o", str(tmp_path / "made")]) == 0
    return tmp_path / "made"


def check(rules: Path) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run([PROMTOOL, "check", "rules", str(rules)], capture_output=True, text=True, check=False)


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool (Debian: apt-get install prometheus)")
def test_prometheus_reads_the_rules(written: Path) -> None:
    rules = written / RULES_FILE
    good = check(rules)
    assert good.returncode == 0, good.stderr
    assert f"{len(RECORDED) + len(ALERTS)} rules found" in good.stdout
    # The plant: an expression that ends too early is seen.
    rules.write_text(rules.read_text().replace("histogram_quantile(0.95, ", "histogram_quantile(0.95 ", 1))
    assert check(rules).returncode != 0


def test_panels_ask_for_what_the_rules_record(written: Path) -> None:
    dashboard = json.loads((written / DASHBOARD_FILE).read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert asked == [f"topk(20, {each.name})" for each in RECORDED]
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(RECORDED)
    places = [tuple(panel["gridPos"][key] for key in ("x", "y")) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places)
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${source}"}


def test_alerts_rest_on_what_is_recorded() -> None:
    recorded = {each.name for each in RECORDED}
    for alert in ALERTS:
        assert set(re.findall(r"[a-z]+:[a-z_0-9]+:[a-z0-9]+", alert.expression)) <= recorded, alert.name


def test_our_own_metrics_are_those_that_the_daemons_export() -> None:
    found = {name for each in RECORDED for name in re.findall(r"scotfree_[a-z_]+", each.expression)}
    named = {name.removesuffix("_bucket") for name in found}
    exported = "".join(path.read_text() for path in SOURCES.rglob("*.rs"))
    missing = {name for name in named if name not in exported and not _is_composed(name, exported)}
    assert named
    assert missing == set()


def _is_composed(name: str, exported: str) -> bool:
    """Names of a family are made of its prefix and the counter's own name."""
    family, _, own = name.removesuffix("_total").partition("_")[2].partition("_")
    return f"scotfree_{family}_" in exported and re.search(rf"\b{own}\b", exported) is not None
