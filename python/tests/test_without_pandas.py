"""What the study runs without: pandas is not imported where it is installed, and need not be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import zipkin_spans

from scotfree.study.without_pandas import without_pandas


def report(tmp_path: Path, before: str) -> str:
    """What a program says that makes a report, and what of pandas it has imported."""
    spans, page = zipkin_spans.write(tmp_path / "spans.json"), tmp_path / "page.html"
    asked = f"""
import atexit, sys
{before}
atexit.register(lambda: print([name for name in sys.modules if name.partition(".")[0] == "pandas"]))
sys.argv = ["scot-study", "report", {str(spans)!r}, "-o", {str(page)!r}, "--quiet"]
from scotfree.study.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 'class="chart"' in page.read_text()
    return done.stdout


def test_a_report_imports_no_pandas(tmp_path: Path) -> None:
    assert report(tmp_path, "") == "[]\n"


def test_a_report_needs_nothing_that_ibis_shows_tables_with(tmp_path: Path) -> None:
    report(tmp_path, "sys.modules |= dict.fromkeys(['rich', 'pygments', 'markdown_it'])")


def test_spark_may_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    finders = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", list(finders))
    for words in (["report", "x", "--engine", "spark"], ["report", "x", "--engine=spark"]):
        without_pandas(words)
        assert sys.meta_path == finders
    without_pandas(["report", "spark.store"])
    assert len(sys.meta_path) == len(finders) + 1
