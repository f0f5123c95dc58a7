"""F9, F10 and the queue's share against plain numpy on the same columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.figures import findings, tax
from scotfree.study.figures.result import Coverage, Result

CALLS = 3_000


def fleet(seed: int = 7) -> dict[str, Any]:
    """Two methods, one a hundred times slower; weights; some calls that failed and took very long."""
    chance = np.random.default_rng(seed)
    slow = chance.random(CALLS) < 0.3
    stages = chance.lognormal(8, 1, (CALLS, 9)) * np.where(slow, 100, 1)[:, None]
    failed = chance.random(CALLS) < 0.05
    stages[failed] *= 1_000
    return {
        "stages": stages.astype(np.int64),
        "method": np.where(slow, "Slow", "Get").tolist(),
        "status": np.where(failed, "CANCELLED", schema.STATUS_OK).tolist(),
        "sample_weight": chance.choice([1.0, 10.0], CALLS),
    }


def rank(values: np.ndarray[Any, Any], weights: np.ndarray[Any, Any], p: float) -> float:
    """The oracle's quantile: the smallest value whose cumulative weight reaches p of all."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    return float(values[order][np.argmax(reached >= p * reached[-1] * (1 - 1e-12))])


def oracle(columns: dict[str, Any], within: str) -> dict[str, tuple[float, float]]:
    """Share of sums and mean of ratios of each part, by hand."""
    good = np.array(columns["status"]) == schema.STATUS_OK
    stages, weights = columns["stages"][good].astype(float), columns["sample_weight"][good]
    methods, totals = np.array(columns["method"])[good], columns["stages"][good].sum(axis=1)
    keep = np.ones(len(totals), bool)
    if within == "tail":
        for method in set(methods):
            of = methods == method
            keep[of] = totals[of] >= rank(totals[of], weights[of], 0.95)
    elif within == "global_tail":
        keep = totals >= rank(totals, weights, 0.95)
    stages, weights, totals = stages[keep], weights[keep], totals[keep]
    parts = {part: [schema.STAGES.index(name) for name in names] for part, names in tax.PARTS.items()}
    parts["tax"] = [place for place in range(9) if place != schema.APP]
    found = {}
    for part, places in parts.items():
        time = stages[:, places].sum(axis=1)
        found[part] = (
            (time * weights).sum() / (totals * weights).sum(),
            np.average(time / totals, weights=weights),
        )
    return found


def shown(result: Result, scope: str) -> dict[str, tuple[float, float]]:
    rows = [row for row in result.tables["shares"].to_pylist() if row["scope"] == scope]
    return {row["part"]: (row["share"], row["mean_of_ratios"]) for row in rows}


@pytest.mark.parametrize("scope", ["all", "tail", "global_tail"])
def test_shares_are_those_of_the_oracle(tmp_path: Path, scope: str) -> None:
    columns = fleet()
    result = tax.compute_tax(study_of(tmp_path, spans(**columns)))
    found, wanted = shown(result, scope), oracle(columns, scope)
    assert result.coverage is Coverage.COMPLETE
    assert not result.missing
    for part, (of_sums, mean) in wanted.items():
        assert found[part] == pytest.approx((of_sums, mean), rel=1e-12), part
    assert found["unattributed"][0] == pytest.approx(0, abs=1e-12)
    # Were they one, nothing here would tell them apart.
    assert wanted["tax"][0] != pytest.approx(wanted["tax"][1], rel=1e-6)


def test_the_scopes_and_the_two_means_differ_on_this_data() -> None:
    found = {scope: oracle(fleet(), scope)["wire"][0] for scope in ("all", "tail", "global_tail")}
    assert len({round(value, 5) for value in found.values()}) == 3


def test_a_call_at_the_threshold_is_of_the_tail(tmp_path: Path) -> None:
    """Of 100 calls of 1 to 100 units the nearest-rank P95 is the 95th: six calls are at or above."""
    stages = np.zeros((100, 9), np.int64)
    stages[:, schema.APP] = np.arange(1, 101) * 1_000
    stages[94, 0] = 1  # the 95th call alone has a queue
    totals = stages.sum(axis=1)
    result = tax.compute_tax(study_of(tmp_path, spans(stages=stages)))
    assert shown(result, "tail")["queue"][0] == pytest.approx(1 / totals[94:].sum(), rel=1e-9)


def test_published_values_stand_beside(tmp_path: Path) -> None:
    result = tax.compute_tax(study_of(tmp_path, spans(**fleet())))
    published = {entry.what.split()[0]: entry.published for entry in result.comparisons if entry.published}
    assert published == {"tax": 0.020, "wire": 0.011, "stack": 0.0049, "queue": 0.0043}
    queue = tax.compute_queue(study_of(tmp_path / "queue", spans(**fleet())))
    wanted = oracle(fleet(), "all")
    assert queue.comparisons[0].published == 0.21
    assert queue.comparisons[0].measured == pytest.approx(wanted["queue"][0] / wanted["tax"][0], rel=1e-12)


def test_a_lumped_tax_is_shown_and_its_split_is_missing(tmp_path: Path) -> None:
    lumped = schema.provenance_bits(
        {
            stage: schema.Provenance.DERIVED if stage == "server_app" else schema.Provenance.LUMPED
            for stage in schema.STAGES
        }
    )
    columns = {"total_ns": np.full(200, 1_000), "server_app_ns": np.full(200, 800), "provenance": [lumped] * 200}
    study = study_of(tmp_path, spans(**columns))
    result = tax.compute_tax(study)
    assert result.coverage is Coverage.PARTIAL
    assert shown(result, "all")["tax"][0] == pytest.approx(0.2)
    assert shown(result, "all")["queue"][0] is None
    assert "rpc.stage.client_send_queue" in result.missing[0]
    assert tax.compute_queue(study).coverage is Coverage.ABSENT
    stages = tax.compute_coverage(study)
    assert stages.coverage is Coverage.PARTIAL
    how = {(row["stage"], row["how"]): row["share"] for row in stages.tables["stages"].to_pylist()}
    assert how["server_app", "derived"] == 1 and how["request_wire", "lumped"] == 1
    assert how["request_wire", "measured"] == 0


def test_sides_are_told_where_the_clocks_tell_them(tmp_path: Path) -> None:
    """Half of the calls know their sides, half only their sum: the sides' shares are of the first half."""
    half = np.arange(400) < 200
    columns = {
        "total_ns": np.where(half, 1_000, 9_000),
        "server_app_ns": np.where(half, 700, 9_000),
        "request_side_ns": [200 if known else None for known in half],
        "response_side_ns": [100 if known else None for known in half],
    }
    result = tax.compute_tax(study_of(tmp_path, spans(**columns)))
    found = shown(result, "all")
    assert found["request_side"] == pytest.approx((0.2, 0.2)) and found["response_side"] == pytest.approx(
        (0.1, 0.1)
    )
    assert found["tax"][0] == pytest.approx(0.03)
    assert result.coverage is Coverage.PARTIAL
    assert "20 % of their time is before the application and 10 % behind it" in result.findings[0]


def test_sides_are_sums_of_stages_where_these_are_known(tmp_path: Path) -> None:
    columns = fleet()
    found = shown(tax.compute_tax(study_of(tmp_path, spans(**columns))), "all")
    good = np.array(columns["status"]) == schema.STATUS_OK
    weights, stages = columns["sample_weight"][good], columns["stages"][good]
    request = (stages[:, : schema.APP].sum(axis=1) * weights).sum() / (stages.sum(axis=1) * weights).sum()
    assert found["request_side"][0] == pytest.approx(request)


def test_what_no_client_saw_is_not_counted_as_known(tmp_path: Path) -> None:
    """Of 240 calls 20 have their server's record alone: the tax is a share of the time of the others."""
    entry = np.arange(240) < 20
    columns = {
        "total_ns": [None if each else 1_000 for each in entry],
        "server_app_ns": np.where(entry, 9_000, 800),
    }
    study = study_of(tmp_path, spans(**columns))
    result = tax.compute_tax(study)
    said = "Tax is 20 % of the time of the 220 calls (of 240) with the times of both sides"
    assert result.findings[0].startswith(f"{said}; its parts are not known.")
    assert any("Tax rests on 92 % of the successful calls" in note for note in result.notes)
    assert findings.top(study)[0].sentence == f"{said}."


def test_parts_say_of_which_calls_they_are(tmp_path: Path) -> None:
    stages = np.full((200, 9), 100)
    known = np.arange(200) < 50
    columns = {
        name: [
            int(value) if full or place == schema.APP else None for value, full in zip(column, known, strict=True)
        ]
        for place, (name, column) in enumerate(zip(schema.STAGE_COLUMNS, stages.T, strict=True))
    }
    study = study_of(tmp_path, spans(total_ns=stages.sum(axis=1), **columns))
    assert "the calls' time: in the 50 calls with all nine stages queue 44 %" in tax.compute_tax(study).findings[0]
    assert any(
        "; in the 50 calls with all nine stages 50 % of it is queue" in one.sentence for one in findings.top(study)
    )


def test_without_a_server_there_is_no_tax(tmp_path: Path) -> None:
    result = tax.compute_tax(study_of(tmp_path, spans(total_ns=np.full(200, 1_000))))
    assert result.coverage is Coverage.ABSENT and len(result.missing) == 2


def test_what_changes_most_in_the_tail_may_have_become_less(tmp_path: Path) -> None:
    stages = np.zeros((200, 9), np.int64)
    stages[:, [0, schema.APP]] = 50_000
    # Of the slowest, a smaller share waits and a slightly larger one is on the wire.
    stages[-12:, [0, 2, schema.APP]] = [20_000, 10_000, 970_000]
    found = tax.compute_tax(study_of(tmp_path, spans(stages=stages))).findings
    assert any("queue changes most, from 31 % to 2.0 %" in said for said in found), found
