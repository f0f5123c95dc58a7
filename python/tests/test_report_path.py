"""What a report shows of critical paths: the entries, what is on their paths, and how many calls say so."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from small_store import spans, study_of

from scotfree.study.analysis import path_times
from scotfree.study.analysis.study import Study
from scotfree.study.cli import main
from scotfree.study.report.on_path import ROWS_MOST, entries
from scotfree.study.report.overview import overview
from scotfree.study.report.write import write_report

MS = 1_000_000
TRACES = 60


def shop(callees: int = 2) -> dict[str, Any]:
    """Calls of / of 10 ms, one behind the other in it; the first callee waits half of its time for its network."""
    each = np.arange(TRACES * (callees + 1)) % (callees + 1)
    trace = np.arange(TRACES * (callees + 1)) // (callees + 1)
    total = np.where(each == 0, 10 * MS, 8 * MS // callees)
    return {
        "trace_id": [int(one).to_bytes(16, "big") for one in trace],
        "span_id": np.arange(len(each)),
        "parent_id": [None if one == 0 else int(at - one) for at, one in enumerate(each)],
        "start_ns": np.where(each == 0, 0, 1 * MS + (each - 1) * (8 * MS // callees)),
        "total_ns": total,
        "server_app_ns": np.where(each == 1, total // 2, total),
        "service": ["web" if one == 0 else f"shop{one}" for one in each],
        "method": ["/" if one == 0 else "Get" for one in each],
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("path") / "shop.store", spans(**shop()))


def test_an_entry_s_rows_are_the_methods_on_its_path_the_most_first(study: Study) -> None:
    (path,) = overview(study).paths
    assert (path.service, path.method, path.others) == ("web", "/", 0)
    assert {name: (at.calls, at.ns) for name, at in path.at.items()} == {
        name: (calls, 10 * MS) for name, calls in (("p50", 5), ("p95", 5), ("p99", 3))
    }
    found: list[Any] = [
        (row.service, row.parts["p95"].share, row.parts["p95"].ns, row.parts["p95"].outside_ns)
        for row in path.rows
    ]
    assert found == [
        ("shop1", pytest.approx(0.4), 4 * MS, 2 * MS),
        ("shop2", pytest.approx(0.4), 4 * MS, 0),
        ("web", pytest.approx(0.2), 2 * MS, 0),
    ]


def test_what_is_little_is_one_row_of_others(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(**shop(callees=ROWS_MOST + 3)))
    (path,) = entries(path_times.of_entries(study).methods)
    assert (len(path.rows), path.others) == (ROWS_MOST, 4)
    shown = sum(row.parts["p50"].share for row in path.rows)
    assert shown + path.rest["p50"].share == pytest.approx(1)


def test_the_page_and_its_tables_have_it(study: Study, tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    write_report(study, output)
    html = unescape(output.read_text())
    part = html[html.index('<section id="critical-path"') : html.index('<section id="figures"')]
    assert "<h3>web: /</h3>" in part and '<a href="#critical-path">' in html
    assert re.search(r"P95<small>10\u202fms · 5 calls</small>", part)
    assert "40\u202f%<small>4\u202fms, 2\u202fms outside</small>" in part
    folder = output.with_suffix(".parquet")
    stacks = pq.read_table(folder / "critical_path_stacks.parquet")
    assert set(stacks["stack"].to_pylist()) == {"[web] /", "[web] /;[shop1] Get", "[web] /;[shop2] Get"}
    assert pq.read_table(folder / "critical_path.parquet").schema.names == path_times.METHODS.names


def test_scripts_get_it(study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = str(study.store.folder)
    assert main(["report", store, "-o", str(tmp_path / "report.html"), "--json", "--quiet"]) == 0
    (path,) = json.loads(capsys.readouterr().out)["critical_path"]
    assert (path["service"], path["at"]["p99"]["calls"]) == ("web", 3)
    assert path["rows"][0]["parts"]["p50"] == {"share": 0.4, "ns": 4 * MS, "outside_ns": 2 * MS}


def test_calls_that_all_have_a_caller_say_so(tmp_path: Path) -> None:
    study = study_of(tmp_path / "shop.store", spans(**shop() | {"parent_id": np.arange(TRACES * 3)}))
    write_report(study, tmp_path / "report.html")
    assert "No successful call without a caller says how long it took." in (tmp_path / "report.html").read_text()


def test_a_name_that_would_end_a_frame_does_not(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(total_ns=[5], method=["a;b"]))
    assert path_times.of_entries(study).stacks["stack"].to_pylist() == ["[Cart] a_b"] * 3
