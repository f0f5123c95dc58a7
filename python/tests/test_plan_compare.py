"""compare: what leaves its budget, what is noise, what an absolute bound says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from planned import one_method, paced, staged
from small_store import spans, study_of

from scotfree.study import cli
from scotfree.study.plan.calls import Calls
from scotfree.study.plan.compare import Budget, Compared, budgets, compare
from scotfree.study.trouble import StudyError


def noisy(seed: int, *, factor: float = 1.0, calls: int = 500) -> Calls:
    total = (np.random.default_rng(seed).lognormal(13, 0.5, calls) * factor).astype(np.int64)
    return one_method(total_ns=total, server_app_ns=total // 2, start_ns=paced(calls))


def broken(found: Compared) -> list[str]:
    return [one.measure for one in found.changes if one.breaks]


def test_growth_beyond_the_noise_leaves_the_budget() -> None:
    budget = Budget(p95_growth_max=0.1)
    assert broken(compare(noisy(1), noisy(2, factor=1.6), budget)) == ["p95"]
    # The same budget with no growth at all is within it, and growth without a budget is no failure.
    assert broken(compare(noisy(1), noisy(1), budget)) == []
    assert broken(compare(noisy(1), noisy(2, factor=1.6), None)) == []


def test_noise_is_no_failure_unless_an_absolute_bound_is_exceeded() -> None:
    a, b = noisy(1, calls=120), noisy(4, calls=120)
    p99 = next(one for one in compare(a, b, None).changes if one.measure == "p99")
    assert p99.growth > 0 > p99.low
    assert broken(compare(a, b, Budget(p99_growth_max=0.0))) == []
    assert broken(compare(a, b, Budget(p99_ns_max=p99.b - 1))) == ["p99"]
    assert broken(compare(a, b, Budget(p99_ns_max=p99.b))) == []


def test_too_few_samples_are_not_judged() -> None:
    a, b = noisy(1, calls=150), noisy(2, calls=150, factor=3.0)
    assert broken(compare(a, b, Budget(p95_growth_max=0.1, samples_min=151))) == []
    assert broken(compare(a, b, Budget(p95_growth_max=0.1, samples_min=150))) == ["p95"]


def test_the_taxs_share_is_judged_by_points() -> None:
    a = one_method(stages=staged(400, app_ns=80_000), start_ns=paced(400))
    b = one_method(stages=staged(400, app_ns=80_000, server_recv_queue_ns=40_000), start_ns=paced(400))
    # The tax is 80 of 160 us in A, 110 of 190 in B.
    share = next(one for one in compare(a, b, None).changes if one.measure == "tax_share")
    assert (share.a, share.b) == pytest.approx((0.5, 110 / 190), abs=0.005)
    assert broken(compare(a, b, Budget(tax_share_growth_max=0.05))) == ["tax_share"]
    assert broken(compare(a, b, Budget(tax_share_growth_max=0.1))) == []


def test_a_budget_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    below = [f"[[budget]]\n{name} = -1" for name in ("p99_ns_max", "tax_share_max", "samples_min")]
    unknown = ["[[budget]]\np95_grow_max = 1", '[[budget]]\np95_growth_max = "x"', "[budget]\na = 1"]
    for text in ("", "]", *unknown, *below):
        path.write_text(text)
        with pytest.raises(StudyError, match="budget"):
            budgets(path)


def test_a_growth_below_none_is_a_budget(tmp_path: Path) -> None:
    (tmp_path / "budget.toml").write_text("[[budget]]\np99_growth_max = -0.1\np99_ns_max = 0\n")
    assert budgets(tmp_path / "budget.toml") == [Budget(p99_growth_max=-0.1, p99_ns_max=0)]


def _broken_pipe(*_: object, **__: object) -> None:
    raise BrokenPipeError


def test_the_gates_exit_codes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, app_ns in (("a", 50_000), ("b", 90_000)):
        study_of(tmp_path / name, spans(stages=staged(200, app_ns=app_ns), start_ns=paced(200)))
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    budget = tmp_path / "budget.toml"
    budget.write_text('[[budget]]\nmethod = "Cart.*"\np95_growth_max = 0.1\n')
    assert cli.main(["compare", a, b]) == 0
    assert "+" in capsys.readouterr().out
    assert cli.main(["compare", a, b, "--budget", str(budget)]) == 1
    assert "Cart Get leaves its budget: p95" in capsys.readouterr().out
    with monkeypatch.context() as patched:
        patched.setattr("builtins.print", _broken_pipe)
        assert cli.main(["compare", a, b, "--budget", str(budget)]) == 1
    assert cli.main(["compare", b, a, "--budget", str(budget)]) == 0
    assert "Within budget: 1 method" in capsys.readouterr().out
    assert cli.main(["compare", a, str(tmp_path / "none"), "--budget", str(budget)]) == 2


def test_a_method_is_looked_at_if_it_takes_much_in_either(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["Get", "Put", "List"] * 100
    for name, factors in (("a", (100, 1, 10)), ("b", (100, 1000, 10))):
        total = np.tile(factors, 100) * 1000
        study_of(tmp_path / name, spans(total_ns=total, start_ns=paced(300), method=names))
    # Put takes a thousand times as long.
    assert cli.main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--methods", "1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in found["methods"]] == ["Get", "Put"]
    # What is not looked at is in both nevertheless.
    assert (found["only_in_a"], found["only_in_b"]) == ([], [])
