"""Retrieval takes nothing of the study's packages, and the study nothing of its: each is installed by itself."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# By their modules, where these are not called as the package is.
MODULES = {
    "ibis-framework": "ibis",
    "vl-convert-python": "vl_convert",
    "pyarrow-hotfix": "pyarrow_hotfix",
    "pyyaml": "yaml",
    "semantic-text-splitter": "semantic_text_splitter",
}
# Modules of both that stand on an extra of their own, or only describe both programs.
OTHERS = ("scotfree.described", "scotfree.rag.integrations.", "scotfree.study.engine.spark")

BLOCKED = """
import importlib, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])

sys.meta_path.insert(0, Blocked())
"""


def blocked(extra: str) -> set[str]:
    """The modules of packages that only this extra asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = [re.split(r"[^A-Za-z0-9-]", one)[0] for one in project["optional-dependencies"][extra]]
    return {MODULES.get(name, name) for name in names}


def run(extra: str, script: str) -> subprocess.CompletedProcess[str]:
    script = BLOCKED.format(blocked=blocked(extra)) + script
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def modules(package: str) -> list[str]:
    folder = ROOT / "src/scotfree"
    paths = sorted((folder / package).rglob("*.py"))
    names = [".".join(("scotfree", *path.relative_to(folder).with_suffix("").parts)) for path in paths]
    return [name for name in names if not name.startswith(OTHERS) and not name.endswith("__main__")]


def test_every_module_of_retrieval_is_imported_without_what_the_study_stands_on() -> None:
    assert {"pyarrow", "duckdb", "altair", "ibis", "vl_convert"} <= blocked("study")
    names = modules("rag")
    assert "scotfree.rag.commands.index" in names and len(names) > 50
    done = run("study", f"for name in {names!r}: importlib.import_module(name)")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("extra", "program", "words"),
    [
        ("study", "scotfree.study.cli", ["report", "traces"]),
        ("study", "scotfree.study.cli", ["fleet", "--to", "fleet"]),
        ("study", "scotfree.study.plan.cli", ["traces"]),
        ("rag", "scotfree.rag.cli", ["index", "."]),
    ],
)
def test_what_is_missing_is_named_with_what_installs_it(extra: str, program: str, words: list[str]) -> None:
    done = run(extra, f"from {program} import main\nsys.exit(main({words!r}))")
    assert done.returncode == 2, done.stderr
    assert "is not installed" in done.stderr and f"pip install 'scotfree[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_needs_neither() -> None:
    for extra, program in (("study", "scotfree.study.cli"), ("study", "scotfree.study.plan.cli")):
        done = run(extra, f"from {program} import main\nmain(['--help'])")
        assert done.returncode == 0 and "usage" in done.stdout, done.stderr
