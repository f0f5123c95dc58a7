"""`scot plan fit --here`: which program makes the calls, and what is said when it cannot."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from planned import answered, paced, staged
from small_store import spans, study_of

from scotfree.signals import heeded
from scotfree.study.plan import cli, here
from scotfree.study.plan.fit import read
from scotfree.study.trouble import StudyError


def stand_in(folder: Path, *lines: str) -> Path:
    """A program in the place of `scot`."""
    program = folder / "scot"
    program.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    program.chmod(0o755)
    return program


@pytest.fixture(name="recorded")
def records(tmp_path: Path) -> dict[str, object]:
    """What `scot lab fit-calls --json` prints of calls that lie in stores."""
    count = 800
    named = {"method": ["SET"] * count}
    study_of(tmp_path / "baseline", spans(stages=staged(count), start_ns=paced(count), **named))
    study_of(tmp_path / "remedy", spans(**answered(count), **named))
    files = [str(tmp_path / "baseline"), str(tmp_path / "remedy")]
    return {"plane": "xdp", "service": "redis", "calls": [count, count], "files": files}


def test_the_fit_is_of_calls_that_scot_makes(
    tmp_path: Path,
    recorded: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = tmp_path / "words"
    program = stand_in(tmp_path, f'echo "$@" > {said}', f"echo '{json.dumps(recorded)}'")
    monkeypatch.setenv(here.PROGRAM, str(program))
    to = tmp_path / "fits" / "persist.json"
    assert cli.main(["fit", "--here", "--plane", "xdp", "-o", str(to)]) == 0
    words = said.read_text().split()
    assert words[:2] == ["lab", "fit-calls"] and words[3:] == ["--json", "--plane", "xdp", "--service", "auto"]
    assert read(to).about == "a device of programs in the kernel before a Redis"
    assert "SET: a device of programs in the kernel before a Redis answers" in capsys.readouterr().out


def test_what_scot_could_not_do_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(here.PROGRAM, str(stand_in(tmp_path, "exit 3")))
    with pytest.raises(StudyError, match=r"fit-calls ended with 3; .*scot doctor"):
        here.record(tmp_path / "calls", "auto", "auto")
    monkeypatch.setenv(here.PROGRAM, str(stand_in(tmp_path, "exit 130")))
    with pytest.raises(KeyboardInterrupt):
        here.record(tmp_path / "calls", "auto", "auto")
    monkeypatch.setenv(here.PROGRAM, str(tmp_path / "none"))
    with pytest.raises(StudyError, match=r"No such file.*scot doctor"):
        here.record(tmp_path / "calls", "auto", "auto")
    monkeypatch.delenv(here.PROGRAM)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(StudyError, match="there is no program `scot` in the path; build it"):
        here.program()


def test_a_signal_ends_the_calls_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = tmp_path / "cleaned"
    program = tmp_path / "scot"
    program.write_text(
        f"""#!{sys.executable}
import os, pathlib, signal, sys

def end(*_):
    pathlib.Path({str(cleaned)!r}).touch()
    sys.exit(143)

signal.signal(signal.SIGTERM, end)
os.kill(os.getppid(), signal.SIGTERM)
signal.pause()
"""
    )
    program.chmod(0o755)
    monkeypatch.setenv(here.PROGRAM, str(program))
    with heeded(), pytest.raises(SystemExit, match="143"):
        here.record(tmp_path / "calls", "auto", "auto")
    assert cleaned.exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--here", "a.jsonl"], "traces or a method are named as well"),
        (["--here", "--method", "SET"], "traces or a method are named as well"),
        ([], "calls without the remedy are missing"),
        (["a.jsonl"], r"calls with the remedy \(--remedy\) are missing"),
    ],
)
def test_a_fit_is_of_calls_made_here_or_of_two_sides(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["fit", *words, "-o", str(tmp_path / "persist.json")]) == 2
    said = capsys.readouterr().err
    assert why.replace("\\", "") in said and "--here" in said
