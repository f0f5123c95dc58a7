"""What the plan and the comparison do not take: flags, budgets and fits that are none, told in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from planned import answered, one_method, paced, staged
from small_store import spans, study_of

from scotfree.study import cli
from scotfree.study.plan import cli as plan_cli
from scotfree.study.plan import fit as fit_of
from scotfree.study.plan import machine
from scotfree.study.plan.fit import find, fit, write
from scotfree.study.trouble import StudyError

ENDLESS = "9" * 400
FLAGS = [
    *(
        ("price", flag, value)
        for flag in ("--hedges-max", "--compression-ratio")
        for value in ("nan", "inf", "-1")
    ),
    *(("price", "--compress-ns-per-byte", value) for value in ("nan", "1e308", "-1")),
    *(("price", "--methods", value) for value in ("0", "-1", ENDLESS)),
    ("price", "--log-slots", "-1"),
    *(("capacity", flag, value) for flag in ("--rate", "--link") for value in ("nan", "inf", "0", "1e308")),
    *(("capacity", flag, value) for flag in ("--bytes", "--sessions") for value in ("0", "-1", ENDLESS)),
    *(
        ("capacity", flag, value)
        for flag in ("--time-to-stable", "--time-to-stable-p99", "--rtt", "--access")
        for value in ("0ms", "nan", f"{ENDLESS}s", "99999999999s")
    ),
]


@pytest.mark.parametrize(("command", "flag", "value"), FLAGS)
def test_a_number_that_cannot_be_is_refused_at_once(
    capsys: pytest.CaptureFixture[str], command: str, flag: str, value: str
) -> None:
    words = ["store"] if command == "price" else ["--rate", "9", "--time-to-stable", "2ms"]
    with pytest.raises(SystemExit) as refused:
        plan_cli.main([command, *words, f"{flag}={value}"])
    assert refused.value.code == 2
    assert f"argument {flag}: " in capsys.readouterr().err


def two_stores(folder: Path) -> list[str]:
    for name in ("a", "b"):
        study_of(folder / name, spans(total_ns=[1000] * 200, start_ns=paced(200)))
    return [str(folder / "a"), str(folder / "b")]


@pytest.mark.parametrize(
    "text",
    [
        'budget = ["a"]',
        "budget = [[]]",
        "[[budget]]\np95_ns_max = " + ENDLESS,
        "[[budget]]\np95_growth_max = inf",
        "x = " + "[" * 5000,
        # Budgets that judge nothing are no gate.
        '[[budget]]\nmethod = "Other.*"\np95_ns_max = 1',
        "[[budget]]\np95_ns_max = 1\nsamples_min = 201",
        # Its application is not known.
        "[[budget]]\ntax_share_max = 0.5",
    ],
)
def test_a_budget_that_judges_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    budget = tmp_path / "budget.toml"
    budget.write_text(text)
    assert cli.main(["compare", *two_stores(tmp_path), "--budget", str(budget)]) == 2
    said = capsys.readouterr().err
    assert str(budget) in said
    # Beside what it says after two seconds of how far it is, which a busy machine lets it say more often.
    assert len([line for line in said.splitlines() if " … " not in line]) == 1


def test_what_is_not_judged_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        methods = ["Get", "Put"] * 150
        study_of(tmp_path / name, spans(total_ns=[1000] * 300, start_ns=paced(300), method=methods))
    budget = tmp_path / "budget.toml"
    budget.write_text('[[budget]]\nmethod = "*Get"\np95_ns_max = 1000\n')
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--budget", str(budget)]) == 0
    assert "Within budget: 1 method; 1 method not judged." in capsys.readouterr().out


Change = Callable[[dict[str, Any]], object]


def answers_of(fit: dict[str, Any]) -> list[object]:
    """Those of the first pause's first part."""
    first: list[object] = fit["answers"][0]["parts"][0]
    return first


NO_FITS: dict[str, Change] = {
    "no zone": lambda fit: fit.update(date="2026-11-22T21:00:00"),
    "no date": lambda fit: fit.update(date="soon"),
    "a machine of two lines": lambda fit: fit.update(machine="4 x CPU\nNone pays."),
    "a kernel that returns": lambda fit: fit.update(kernel="6.1\r"),
    "a date that is a number": lambda fit: fit.update(date=5),
    "no pauses": lambda fit: fit.update(answers=[]),
    "a pause before itself": lambda fit: fit["answers"].append(fit["answers"][0]),
    "a pause that is a text": lambda fit: fit["answers"][0].update(pause_ns="x"),
    "a part too few": lambda fit: fit["answers"][0]["parts"].pop(),
    "an answer too few": lambda fit: answers_of(fit).pop(),
    "answers that are texts": lambda fit: answers_of(fit).__setitem__(0, "x"),
    "answers in lists": lambda fit: answers_of(fit).__setitem__(0, [1]),
    "an answer without end": lambda fit: answers_of(fit).__setitem__(0, float("inf")),
    "an answer before its request": lambda fit: answers_of(fit).__setitem__(0, -5e17),
    "a commit that is none": lambda fit: fit.update(commit="a\0b"),
    "an unknown field": lambda fit: fit.update(foo=1),
    "a field too few": lambda fit: fit.pop("wires_most_ns"),
    "a wake-up that is none": lambda fit: fit.update(wakeup_ns=float("nan")),
    "sizes that are texts": lambda fit: fit.update(request_bytes="x"),
    "no wires": lambda fit: fit.update(wires_ns=None),
    "a field of an earlier form": lambda fit: fit.update(processors=2),
}


@pytest.fixture
def fits(tmp_path: Path) -> Path:
    """A folder with one fit."""
    without = one_method(stages=staged(800), start_ns=paced(800))
    write(fit([(without, one_method(**answered(800)))]), tmp_path / "fits" / "persist.json")
    return tmp_path / "fits"


@pytest.mark.parametrize("case", NO_FITS)
def test_a_fit_that_was_tampered_with_is_none(fits: Path, case: str) -> None:
    path = fits / "persist.json"
    text = json.loads(path.read_text())
    NO_FITS[case](text)
    path.write_text(json.dumps(text))
    with pytest.raises(StudyError, match="it is none"):
        find(fits, "persist", datetime.now(UTC))


def test_what_is_no_fit_does_not_stand_in_the_way_of_one(fits: Path) -> None:
    (fits / "a.json").write_text("[" * 5000)
    (fits / "folder.json").mkdir()
    (fits / "link.json").symlink_to("nowhere")
    assert find(fits, "persist", datetime.now(UTC)).remedy == "persist"
    (fits / "persist.json").unlink()
    with pytest.raises(StudyError, match=r"a\.json: it is none"):
        find(fits, "persist", datetime.now(UTC))


def test_a_fit_of_calls_with_the_remedy_and_the_same_calls_without_it_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = tmp_path / "calls.jsonl"
    assert (
        plan_cli.main(["fit", str(calls), "--remedy", str(tmp_path / "." / "calls.jsonl"), "-o", "fit.json"]) == 2
    )
    assert "given as calls without the remedy and with it" in capsys.readouterr().err


def test_a_fit_is_not_written_over_a_folder(fits: Path) -> None:
    found = find(fits, "persist", datetime.now(UTC))
    with pytest.raises(StudyError, match="it is a folder"):
        write(found, fits)
    assert sorted(path.name for path in fits.iterdir()) == ["persist.json"]


@pytest.mark.parametrize("held", ["", "measured calls", "[]", '{"remedy": 5}'])
def test_a_fit_is_written_over_nothing_but_a_fit(fits: Path, tmp_path: Path, held: str) -> None:
    fitted = find(fits, "persist", datetime.now(UTC))
    other = tmp_path / "calls.jsonl"
    other.write_text(held)
    with pytest.raises(StudyError, match="it is there, and no fit"):
        write(fitted, other)
    assert other.read_text() == held and list(tmp_path.glob("*.half")) == []
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StudyError, match="a pipe or a device"):
        write(fitted, tmp_path / "pipe")
    # One of another version is a fit, too.
    path = fits / "persist.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    write(fitted, path)
    assert find(fits, "persist", datetime.now(UTC)) == fitted


def test_a_fit_that_is_too_large_is_not_read(fits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_of, "_BYTES_MAX", 100)
    with pytest.raises(StudyError, match="too large"):
        find(fits, "persist", datetime.now(UTC))


def test_a_store_that_only_has_a_like_name_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, total in (("fleet.store", 1_000), ("fleet.before", 1_000), ("fleet.after", 3_000)):
        study_of(tmp_path / name, spans(total_ns=[total] * 300, start_ns=paced(300)))
    budget = tmp_path / "budget.toml"
    budget.write_text('[[budget]]\nmethod = "*"\np95_growth_max = 0.1\n')
    words = ["compare", str(tmp_path / "fleet.before"), str(tmp_path / "fleet.after"), "--budget", str(budget)]
    assert cli.main(words) == 1
    (tmp_path / "fleet.after" / "store.json").unlink()
    # What holds no store any more is read as data, of which there is none; never as its neighbour.
    assert cli.main(words) == 2
    assert "Within budget" not in capsys.readouterr().out


def test_the_names_of_a_fit_do_not_steer_the_terminal(
    fits: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fits / "persist.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"machine": "\x1b[31mred"}))
    study_of(tmp_path / "store", spans(stages=staged(200), start_ns=paced(200), method=["Put"] * 200))
    assert plan_cli.main([str(tmp_path / "store"), "--fits", str(fits)]) == 0
    found = capsys.readouterr()
    assert "\\x1b[31mred" in found.out and "\x1b" not in found.out + found.err


def test_a_commit_that_the_repository_does_not_know_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not machine.has_changed_since("", "persist")
    answers = {"HEAD": "abc", "--verify": None}
    monkeypatch.setattr(machine, "_git", lambda *words: answers.get(words[1]))
    assert machine.has_changed_since("0" * 40, "persist")
    monkeypatch.setattr(machine, "_git", lambda *_: None)
    assert not machine.has_changed_since("0" * 40, "persist")
