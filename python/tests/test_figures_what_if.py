"""F15: the matrix against plain numpy, and the paper's beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study import schema
from scotfree.study.figures import what_if
from scotfree.study.figures.result import Coverage


def queueing(seed: int = 3, calls: int = 2_000) -> dict[str, Any]:
    """Cart.Get has a tail made by its receive queue; Spanner one made by its application."""
    chance = np.random.default_rng(seed)
    stages = chance.integers(1_000, 2_000, (calls, 9))
    is_cart = chance.random(calls) < 0.5
    slow = chance.random(calls) < 0.1
    stages[is_cart & slow, schema.STAGES.index("server_recv_queue")] += 1_000_000
    stages[~is_cart & slow, schema.APP] += chance.integers(0, 10_000_000, (~is_cart & slow).sum())
    return {
        "stages": stages,
        "service": np.where(is_cart, "Cart", "Spanner").tolist(),
        "method": np.where(is_cart, "Cart.Get", "Read").tolist(),
    }


def oracle(stages: np.ndarray[Any, Any], place: int) -> float:
    """The share of the tail that leaves it, as the specification says it."""
    total = stages.sum(axis=1)
    rank = int(np.ceil(0.95 * len(total))) - 1
    threshold = np.sort(total)[rank]
    median = np.sort(stages[:, place])[int(np.ceil(0.5 * len(total))) - 1]
    tail = total > threshold
    return float(((total - stages[:, place] + median < threshold) & tail).sum() / tail.sum())


def test_the_matrix_is_the_oracles(tmp_path: Path) -> None:
    columns = queueing()
    result = what_if.compute(study_of(tmp_path, spans(**columns)))
    assert result.coverage is Coverage.COMPLETE
    rows = {(row["service"], row["stage"]): row for row in result.tables["what_if"].to_pylist()}
    assert len(rows) == 3 * 9
    for service in ("Cart", "Spanner"):
        of = columns["stages"][np.array(columns["service"]) == service]
        for place, stage in enumerate(schema.STAGES):
            found = rows[service, stage]
            assert found["leaves"] == pytest.approx(oracle(of, place)), (service, stage)
            assert found["leaves_low"] <= found["leaves"] <= found["leaves_high"]
    said = next(finding for finding in result.findings if "Cart.Get" in finding)
    cell = rows["Cart", "server_recv_queue"]
    assert said.startswith("If Cart.Get's server receive queue took its median, ")
    assert said.endswith(f"{cell['samples']} slow calls).")
    # A call at T is not of the tail: were it, the denominator would be larger by one.
    of = columns["stages"][np.array(columns["service"]) == "Cart"].sum(axis=1)
    tail = (of > np.sort(of)[int(np.ceil(0.95 * len(of))) - 1]).sum()
    assert rows["Cart", "server_app"]["tail"] == tail


def cell(leaves: float, low: float, high: float) -> dict[str, Any]:
    return {"leaves": leaves, "leaves_low": low, "leaves_high": high, "samples": 34}


def test_a_sentence_says_what_would_help_and_what_it_rests_on() -> None:
    half = what_if.sentence("Get", "server_app", cell(0.501, 0.42, 0.58))
    assert half == (
        "If Get's handler took its median, half of its slowest 5 % of calls would no longer be slow "
        "(42 to 58 %, 34 slow calls)."
    )
    assert "all of its slowest 5 % of calls would no longer be slow (34 slow calls)" in what_if.sentence(
        "Get", "server_app", cell(1.0, 1.0, 1.0)
    )
    assert what_if.sentence("Get", "server_app", cell(0.0, 0.0, 0.0)).startswith("No stage by itself")


def test_published_cells_of_the_users_services_stand_beside_his(tmp_path: Path) -> None:
    result = what_if.compute(study_of(tmp_path, spans(**queueing())))
    cells = {entry.what: entry for entry in result.comparisons}
    # Services that the user does not have would be rows without a value of his.
    assert len(cells) == 9 and all(entry.measured is not None for entry in cells.values())
    app = cells["Spanner: no longer among the slowest 5 % if server application took its median"]
    assert app.published == pytest.approx(0.2656)
    # Section 3.3.2 reads these off its own figure; a row in the wrong order of columns would move them.
    published = {(row["service"], row["stage"]): row["leaves"] for row in what_if.published_matrix().to_pylist()}
    assert published["SSD cache", "server_recv_queue"] == pytest.approx(0.3358)
    assert published["KV-Store", "response_stack"] == pytest.approx(0.1547)
    assert published["F1", "client_recv_queue"] == pytest.approx(0.2856)


def test_without_a_service_of_the_paper_nothing_is_compared_and_its_matrix_is_drawn(tmp_path: Path) -> None:
    columns = queueing()
    columns["service"] = ["Basket" if service == "Spanner" else service for service in columns["service"]]
    result = what_if.compute(study_of(tmp_path, spans(**columns)))
    assert result.comparisons == []
    assert result.tables["published"].num_rows == 72


def test_without_stages_the_missing_attributes_are_named(tmp_path: Path) -> None:
    result = what_if.compute(study_of(tmp_path, spans(total_ns=np.arange(1, 201))))
    assert result.coverage is Coverage.ABSENT and "rpc.stage." in result.missing[0]


def test_with_the_application_alone_the_matrix_has_one_column(tmp_path: Path) -> None:
    total = np.arange(1, 201) * 1_000
    result = what_if.compute(study_of(tmp_path, spans(total_ns=total, server_app_ns=total // 2)))
    assert result.coverage is Coverage.PARTIAL
    assert {row["stage"] for row in result.tables["what_if"].to_pylist()} == {"server_app"}
