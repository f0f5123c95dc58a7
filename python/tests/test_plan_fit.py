"""The fit: when it may be used, and what the command does with and without one."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from planned import ANSWER_NS, answered, one_behind_the_other, one_method, paced, staged
from small_store import spans, study_of

from scotfree.study.plan import calls as calls_of
from scotfree.study.plan import cli, machine
from scotfree.study.plan.fit import PARTS, Fit, find, fit, read, stale, write
from scotfree.study.plan.load import load
from scotfree.study.plan.text import NONE_PRICED
from scotfree.study.trouble import StudyError

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def fitted() -> Fit:
    return fit([(one_method(stages=staged(800), start_ns=paced(800)), one_method(**answered(800)))])


def test_the_devices_time_is_what_follows_the_kept_stages(fitted: Fit) -> None:
    # With 10 us until the caller is woken, which is never later than a tenth above that.
    (only,) = fitted.answers
    assert only.median_ns == pytest.approx(ANSWER_NS + 10_000, rel=0.02)
    assert len(only.parts) == PARTS and fitted.wakeup_ns == pytest.approx(11_000, rel=0.02)


def test_a_fit_is_read_as_it_was_written(tmp_path: Path, fitted: Fit) -> None:
    write(fitted, tmp_path / "fits" / "persist.json")
    assert find(tmp_path / "fits", "persist", NOW) == fitted
    assert not list((tmp_path / "fits").glob("*.half"))


def test_a_stale_fit_is_refused_and_says_how_to_make_it_anew(
    tmp_path: Path, fitted: Fit, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stale(fitted, NOW) is None
    old = replace(fitted, date=(NOW - timedelta(days=31)).isoformat())
    for one, why in ((old, "31 days old"), (replace(fitted, machine="another"), "another machine")):
        write(one, tmp_path / "persist.json")
        with pytest.raises(StudyError, match=f"{why}.*scot plan fit --here"):
            find(tmp_path, "persist", NOW)
    young = replace(fitted, date=(NOW - timedelta(days=29)).isoformat())
    assert stale(young, NOW) is None
    monkeypatch.setattr(
        machine, "has_changed_since", lambda commit, remedy: (commit, remedy) == (fitted.commit, "persist")
    )
    assert "has changed" in (stale(fitted, NOW) or "")


def test_what_is_no_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "persist.json"
    for text in ("", "[]", "{}", '{"parts": [{}]}'):
        path.write_text(text)
        with pytest.raises(StudyError, match="make it anew"):
            read(path)


def test_an_experiment_that_says_nothing_is_refused() -> None:
    few = one_method(stages=staged(100), start_ns=paced(100))
    with pytest.raises(StudyError, match="400 are needed"):
        fit([(few, one_method(**answered(800)))])
    stages = staged(800, app_ns=30_000)
    stages[:, 3] = np.arange(800) * 10_000
    with pytest.raises(StudyError, match="saturated"):
        fit([(one_method(stages=stages, start_ns=paced(800, 20_000)), one_method(**answered(800)))])


def test_the_plan_without_a_fit_prices_the_rest_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spans(total_ns=[100_000] * 200, start_ns=paced(200), method=["Put"] * 200)
    study_of(tmp_path / "store", rows)
    assert cli.main([str(tmp_path / "store"), "--fits", str(tmp_path / "none")]) == 0
    found = capsys.readouterr().out
    assert found.startswith(NONE_PRICED) and "None pays" not in found
    assert "- persist, Cart Put: not priced: use a fit of persist: there is none in" in found
    # Nothing is made anew that was not there.
    assert "make one on this machine, in half a minute: scot plan fit --here" in found


def test_the_plan_by_a_fit(tmp_path: Path, fitted: Fit, capsys: pytest.CaptureFixture[str]) -> None:
    rows = spans(stages=staged(400, app_ns=970_000), start_ns=paced(400, 3_000_000), method=["Put"] * 400)
    study_of(tmp_path / "store", rows)
    write(fitted, tmp_path / "fits" / "persist.json")
    words = [str(tmp_path / "store"), "--fits", str(tmp_path / "fits")]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("persist takes the P95 of Cart Put from 1.14 ms to 63")
    assert cli.main([*words, "--updates", "Basket.*"]) == 2
    assert "none of 1 method matches; match a method" in capsys.readouterr().err
    assert cli.main([*words, "--json", "--log-slots", "1"]) == 0
    price = json.loads(capsys.readouterr().out)["prices"][0]
    # 1.05 ms every 3 ms: a third of a call under way, so one slot is enough; without any nothing is gained.
    assert price["remedy"] == "persist" and price["pays"] and price["saved_share"] == pytest.approx(0.94, abs=0.01)
    assert cli.main([*words, "--json", "--log-slots", "0"]) == 0
    price = json.loads(capsys.readouterr().out)["prices"][0]
    assert not price["pays"] and "fill the log's" in price["notes"][0]
    assert cli.main([str(tmp_path / "nothing")]) == 2


def test_of_very_many_calls_some_stand_for_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(tmp_path, spans(stages=staged(2_000), start_ns=paced(2_000)))
    monkeypatch.setattr(calls_of, "CALLS_MAX", 500)
    found = next(calls_of.methods(study, 1))
    assert 350 < len(found) < 650 and set(found.weight) == {4.0}
    # Those before a call are not all seen, so that the queue is not judged by them.
    assert load(found).waiting_share is None
    monkeypatch.undo()
    assert load(next(calls_of.methods(study, 1))).waiting_share == 0.0


def test_of_very_many_calls_of_one_trace_some_stand_for_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spans(stages=staged(2_000), start_ns=paced(2_000), trace_id=[bytes(16)] * 2_000)
    monkeypatch.setattr(calls_of, "CALLS_MAX", 500)
    found = next(calls_of.methods(study_of(tmp_path, rows), 1))
    assert 350 < len(found) < 650 and found.weight.sum() == pytest.approx(2_000, rel=0.3)


def test_a_fit_is_of_one_method_on_both_sides(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With SETs answered early GETs take most time, and are nothing that the remedy touches."""
    count = 800
    both = {"method": ["SET"] * count + ["GET"] * count, "start_ns": np.tile(paced(count), 2)}
    slow, quick = staged(count, app_ns=90_000), staged(count, app_ns=50_000)
    study_of(tmp_path / "baseline", spans(stages=np.vstack([slow, quick]), **both))
    sets = spans(**answered(count), method=["SET"] * count)
    gets = spans(stages=quick, start_ns=paced(count), method=["GET"] * count)
    study_of(tmp_path / "remedy", one_behind_the_other(sets, gets))
    to = tmp_path / "persist.json"
    words = ["fit", str(tmp_path / "baseline"), "--remedy", str(tmp_path / "remedy"), "-o", str(to)]
    assert cli.main(words) == 0
    (only,) = read(to).answers
    assert only.median_ns == pytest.approx(ANSWER_NS + 10_000, rel=0.02)
    assert "persist.json: SET: the device answers" in capsys.readouterr().out
    assert cli.main([*words, "--method", "GET"]) == 2
    assert "the server answered 100 % of the calls with the remedy, and no device did" in capsys.readouterr().err
    assert cli.main([*words, "--method", "DEL*"]) == 2
    assert "no method that matches DEL* has 100 successful calls; those that have are GET, SET" in (
        capsys.readouterr().err
    )
    study_of(tmp_path / "other", spans(stages=quick, start_ns=paced(count)))
    words[3] = str(tmp_path / "other")
    assert cli.main(words) == 2
    assert "no method that matches SET has 100 successful calls; those that have are Get" in (
        capsys.readouterr().err
    )


def test_sides_that_are_swapped_or_of_another_shape_are_refused() -> None:
    baseline = {"stages": staged(800), "start_ns": paced(800)}
    with pytest.raises(StudyError, match=r"answered 100 % of the calls without.*those without the remedy first"):
        fit([(one_method(**answered(800)), one_method(**baseline))])
    with pytest.raises(StudyError, match="of 64 B and those with it of 1 kB"):
        fit([(one_method(**baseline, req_bytes=[64] * 800), one_method(**answered(800), req_bytes=[1_000] * 800))])


def test_what_came_stands_beside_its_forecast(
    tmp_path: Path, fitted: Fit, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = spans(stages=staged(400, app_ns=970_000), start_ns=paced(400, 3_000_000), method=["Put"] * 400)
    study_of(tmp_path / "before", rows)
    study_of(tmp_path / "after", spans(**answered(400, 40_000), method=["Put"] * 400, service=["Basket"] * 400))
    write(fitted, tmp_path / "fits" / "persist.json")
    words = [str(tmp_path / "before"), "--fits", str(tmp_path / "fits"), "--measured", str(tmp_path / "after")]
    assert cli.main(words) == 0
    found = capsys.readouterr().out
    # 20 us are kept, the fit's device answers in 30 us and what came in 40, the caller is woken in 10.
    assert "persist was applied:" in found and "14 % too low, and its interval misses" in found, found
    assert cli.main([*words, "--json"]) == 0
    medians = [one for one in json.loads(capsys.readouterr().out)["outcomes"] if one["p"] == 0.5]
    (median,) = medians
    assert median["method"] == "Put" and median["before_ns"] == pytest.approx(1_050_000, rel=0.02)
    assert median["measured_ns"] == pytest.approx(70_000, rel=0.02) and -0.2 < median["error"] < -0.1
    assert cli.main([*words, "--applied", "ring"]) == 2
    assert "the forecast of ring beside what came: there is none" in capsys.readouterr().err
    study_of(tmp_path / "other", spans(**answered(400), method=["Get"] * 400))
    assert cli.main([*words[:-1], str(tmp_path / "other")]) == 2
    assert "no method with a forecast has calls there, which are of Cart Get" in capsys.readouterr().err
