"""The description of which `scot` makes completions and manual pages says what the parsers say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scotfree import described
from scotfree.command_line import Commands
from scotfree.rag import cli as rag
from scotfree.study import cli as study
from scotfree.study.commands.flags.reading import FORMS
from scotfree.study.ingest.forms import READERS
from scotfree.study.plan import cli as plan

KEPT = Path(__file__).parents[2] / "crates/scotfree-cli/data/python-commands.json"
# What is only imported where it is worked with: together seconds.
HEAVY = (
    "altair",
    "duckdb",
    "faiss",
    "ibis",
    "numpy",
    "onnxruntime",
    "pandas",
    "polars",
    "pyarrow",
    "pyspark",
    "tqdm",
    "vl_convert",
)
PROGRAMS = ("scotfree.study.cli", "scotfree.study.plan.cli", "scotfree.rag.cli")
# Every command of the study and the planner by itself.
ASKED = [
    *((program, ("--help",)) for program in PROGRAMS),
    *(("scotfree.study.cli", (name, "--help")) for name in study.COMMANDS.helps),
    *(("scotfree.study.plan.cli", (name, "--help")) for name in plan.COMMANDS.helps),
]


def test_what_is_kept_is_what_the_parsers_say() -> None:
    # Some defaults come from the environment.
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    made = subprocess.run(
        [sys.executable, "-m", "scotfree.described"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert KEPT.read_text(encoding="utf-8") == made, f"python -m scotfree.described > {KEPT}"


def test_flags_are_told_with_what_they_take() -> None:
    programs = {program["name"]: program for program in described.described()}
    assert programs["plan"]["default"] == "price" and programs["study"]["default"] is None
    report = next(command for command in programs["study"]["commands"] if command["name"] == "report")
    arguments = {
        argument["flags"][-1] if "flags" in argument else "": argument for argument in report["arguments"]
    }
    assert arguments["--output"]["flags"] == ["-o", "--output"] and arguments["--output"]["is_path"]
    assert arguments["--engine"]["choices"] == ["duckdb", "spark"]
    assert "value" not in arguments["--json"] and arguments["--rules"]["is_many"]
    assert arguments[""]["value"] == "DATA" and arguments[""]["is_required"]
    assert str(Path.home()) not in described.text()
    assert json.loads(described.text()) == list(programs.values())


@pytest.mark.parametrize("commands", [study.COMMANDS, plan.COMMANDS, rag.COMMANDS])
def test_the_overview_says_what_each_command_says(commands: Commands) -> None:
    assert {name: commands.load(name).HELP for name in commands.helps} == dict(commands.helps)


def test_the_forms_that_flags_name_are_those_of_the_readers() -> None:
    assert sorted(reader.form for reader in READERS) == list(FORMS)


@pytest.mark.parametrize(("program", "words"), ASKED)
def test_help_waits_for_no_library(program: str, words: tuple[str, ...]) -> None:
    asked = f"""
import sys
from {program} import main
try:
    main({words!r})
except SystemExit as ended:
    assert ended.code == 0
loaded = [name for name in {HEAVY!r} if name in sys.modules]
assert not loaded, loaded
"""
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "usage: scot " in done.stdout
