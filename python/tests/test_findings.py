"""What is said first is what most time goes into; what is missing is said last, by what would allow it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.analysis.study import Study
from scotfree.study.figures import findings, what_if
from scotfree.study.figures.result import Coverage, Result

CALLS = 3_000
QUEUE = schema.STAGES.index("server_recv_queue")


def columns(chance: np.random.Generator) -> dict[str, Any]:
    """Cart.Get costs most time and has a tail of its receive queue; Ad.Show is cheap, its tail is its "
    "application."""
    is_cart = chance.random(CALLS) < 0.5
    stages = chance.integers(10_000, 12_000, (CALLS, 9))
    stages[is_cart] *= 10
    slow = chance.random(CALLS) < 0.08
    stages[is_cart & slow, QUEUE] += 10_000_000
    stages[~is_cart & slow, schema.APP] += 1_000_000
    west = chance.random(CALLS) < 0.5
    stages[west, schema.APP] *= 2
    where = np.where(west, "west", "east").tolist()
    return {
        "stages": stages,
        "service": np.where(is_cart, "Cart", "Ad").tolist(),
        "method": np.where(is_cart, "Cart.Get", "Ad.Show").tolist(),
        "status": np.where(chance.random(CALLS) < 0.02, "NOT_FOUND", schema.STATUS_OK).tolist(),
        "cpu_cycles": np.ones(CALLS),
        "server_cluster": where,
        "client_cluster": where,
    }


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return study_of(tmp_path_factory.mktemp("findings"), spans(**columns(np.random.default_rng(1))))


def test_the_weightiest_come_first(study: Study) -> None:
    found = findings.top(study)
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
    sentences = [one.sentence for one in found]
    cart, ad = (next(at for at, text in enumerate(sentences) if f"If {name}" in text) for name in ("Cart", "Ad"))
    assert cart < ad
    assert "Cart.Get's server receive queue took" in sentences[cart] and "Ad.Show's handler took" in sentences[ad]
    slow = next(one for one in found if one.number == "F16")
    assert "Cart.Get loses most time in west" in slow.sentence
    error = next(one for one in found if one.number == "F23")
    failed = np.mean([status == "NOT_FOUND" for status in columns(np.random.default_rng(1))["status"]])
    assert error.share == pytest.approx(failed) and "NOT_FOUND" in error.sentence


def test_a_tails_weight_is_its_time(study: Study) -> None:
    rows = columns(np.random.default_rng(1))
    good = np.array(rows["status"]) == schema.STATUS_OK
    total, service = rows["stages"].sum(axis=1)[good], np.array(rows["service"])[good]
    own = total[service == "Cart"]
    p95 = np.sort(own)[int(np.ceil(0.95 * len(own))) - 1]
    cart = sorted(set(zip(rows["service"], rows["method"], strict=True))).index(("Cart", "Cart.Get"))
    assert what_if.tail_time(study)[cart] == pytest.approx(own[own >= p95].sum() / total.sum())


def test_what_is_absent_is_together_with_what_waits_for_the_same() -> None:
    absent = {number: Result(Coverage.ABSENT, missing=["sizes", "sizes"]) for number in ("F6", "F7")}
    lacking = {"F1": Result(Coverage.ABSENT, missing=["metrics"])}
    shown = {"F8": Result(Coverage.PARTIAL, missing=["cycles", "sizes"]), "F2": Result(Coverage.COMPLETE)}
    assert findings.unsaid(lacking | absent | shown) == [(["F6", "F7"], ["sizes"]), (["F1"], ["metrics"])]


def test_nothing_to_say_is_said_by_nothing(tmp_path: Path) -> None:
    assert findings.top(study_of(tmp_path, spans(total_ns=np.ones(3)))) == []
