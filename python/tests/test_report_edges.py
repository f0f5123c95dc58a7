"""Times by method and by edge: what calls wait outside the handler, from few calls up, with honest intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_store import spans, study_of

from scotfree.study.analysis import edges, order

CALLS = 240


def shop(**columns: Any) -> dict[str, Any]:
    """Checkout and Ad call Cart.Get: the handler takes 1 ms, outside it Checkout's calls wait i us, Ad's 5 us."""
    is_checkout = np.arange(CALLS) % 4 < 3
    waits = np.where(is_checkout, np.arange(CALLS) * 1_000, 5_000)
    return {
        "total_ns": 1_000_000 + waits,
        "server_app_ns": np.full(CALLS, 1_000_000),
        "client_service": np.where(is_checkout, "Checkout", "Ad").tolist(),
        **columns,
    }


def test_an_edge_is_who_calls_what_and_waits_outside_the_handler(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(**shop()))
    first, second = edges.edges(study).to_pylist()
    assert (first["client_service"], second["client_service"]) == ("Checkout", "Ad")
    waits = np.sort([at * 1_000 for at in range(CALLS) if at % 4 < 3])
    assert first["samples"] == len(waits) == 180
    for name, p in (("p50_ns", 0.5), ("p95_ns", 0.95), ("p99_ns", 0.99)):
        assert first[name] == waits[int(np.ceil(p * len(waits))) - 1], name
    assert second["p50_ns"] == second["p99_ns"] == 5_000
    everything = np.sum(shop()["total_ns"])
    assert first["share"] == pytest.approx(waits.sum() / everything)


def test_only_calls_with_both_records_have_an_edge_and_five_are_needed(tmp_path: Path) -> None:
    app = np.full(CALLS, 1_000_000.0)
    app[4:] = np.nan
    four = study_of(tmp_path / "four", spans(**shop(server_app_ns=_known(app))))
    assert edges.edges(four).num_rows == 0 and edges.edges_seen(four) == 2
    app[:8] = 1_000_000.0
    eight = study_of(tmp_path / "eight", spans(**shop(server_app_ns=_known(app))))
    assert [row["samples"] for row in edges.edges(eight).to_pylist()] == [6]


def _known(values: np.ndarray[Any, Any]) -> list[int | None]:
    return [None if np.isnan(value) else int(value) for value in values]


def test_a_method_counts_all_its_calls_and_says_whose_time_it_is(tmp_path: Path) -> None:
    status = ["OK"] * CALLS
    status[:12] = ["UNAVAILABLE"] * 12
    method = ["Get"] * (CALLS - 20) + ["Root"] * 16 + ["Rare"] * 4
    total: list[int | None] = [int(value) for value in shop()["total_ns"]]
    # No client's record: the server's alone.
    total[CALLS - 20 : CALLS - 4] = [None] * 16
    study = study_of(tmp_path, spans(**shop(status=status, method=method, total_ns=total)))
    rows = {row["method"]: row for row in edges.methods(study).to_pylist()}
    assert set(rows) == {"Get", "Root"}
    get, root = rows["Get"], rows["Root"]
    assert (get["calls"], get["errors"], get["samples"], get["is_client"]) == (220, 12, 208, True)
    assert get["error_share"] == pytest.approx(12 / 220)
    assert get["pairs"] == 208 and 0 < get["tax"] < 1
    assert (root["samples"], root["p50_ns"], root["is_client"], root["tax"]) == (16, 1_000_000, False, None)
    assert list(rows) == ["Get", "Root"] and get["share"] > root["share"] > 0


def test_calls_of_one_trace_say_less_than_calls_of_many(tmp_path: Path) -> None:
    alone = study_of(tmp_path / "alone", spans(**shop()))
    edge = edges.edges(alone).to_pylist()[0]
    each = edges.edge_intervals(alone, [edge], 0.5)[0]
    assert each.traces == 180
    assert each.low is not None and each.high is not None and each.low < edge["p50_ns"] < each.high
    # Twenty traces whose calls are alike: as much is known as of twenty calls.
    together = [(at // 12).to_bytes(16, "big") for at in range(CALLS)]
    study = study_of(tmp_path / "together", spans(**shop(trace_id=together)))
    shared = edges.edge_intervals(study, [edge], 0.5)[0]
    assert shared.traces == 20
    assert shared.low is not None and shared.high is not None
    assert shared.low < each.low and each.high < shared.high
    one = study_of(tmp_path / "one", spans(**shop(trace_id=[bytes(16)] * CALLS)))
    assert edges.edge_intervals(one, [edge], 0.5)[0] == edges.Interval(1, None, None)
    assert edges.method_intervals(one, edges.methods(one).to_pylist()[:1], 0.5)[0].low is None


def test_many_are_asked_at_once_and_each_is_told_as_if_it_were_alone(tmp_path: Path) -> None:
    method = ["Get"] * (CALLS - 60) + ["Root"] * 56 + ["Rare"] * 4
    status = ["DEADLINE" if at % 20 == 0 else "OK" for at in range(CALLS)]
    study = study_of(tmp_path, spans(**shop(method=method, status=status)))
    found, methods = edges.edges(study).to_pylist(), edges.methods(study).to_pylist()
    assert len(found) > 1 and len(methods) > 1
    assert edges.edge_intervals(study, found, 0.5) == [edges.edge_intervals(study, [row], 0.5)[0] for row in found]
    both = edges.method_intervals(study, methods, 0.5)
    assert both == [edges.method_intervals(study, [row], 0.5)[0] for row in methods]
    assert edges.error_intervals(study, methods) == [edges.error_intervals(study, [row])[0] for row in methods]
    assert len(set(both)) > 1


def test_the_interval_of_errors_holds_their_share(tmp_path: Path) -> None:
    status = ["DEADLINE" if at % 20 == 0 else "OK" for at in range(CALLS)]
    study = study_of(tmp_path, spans(**shop(status=status)))
    row = edges.methods(study).to_pylist()[0]
    found = edges.error_intervals(study, [row])[0]
    assert found.low is not None and found.high is not None
    assert 0.02 < found.low < row["error_share"] == 0.05 < found.high < 0.1


def test_ranks_that_bound_a_median_are_those_of_the_tables() -> None:
    # The sign test's tables: of 10 values the second and the ninth, of 20 the sixth and the fifteenth.
    assert order.shares(0.5, 5) is None
    assert order.shares(0.5, 6) == (1 / 6, 1.0)
    assert order.shares(0.5, 10) == (0.2, 0.9)
    assert order.shares(0.5, 20) == (0.3, 0.75)
    assert order.shares(0.95, 20) is None
    assert order.shares(0.5, 0) is None


@settings(deadline=None, max_examples=50)
@given(st.integers(800, 1_200), st.sampled_from([0.5, 0.9, 0.95]))
def test_the_normal_distribution_takes_over_without_a_step(samples: int, p: float) -> None:
    low, high = order.shares(p, samples) or (0.0, 0.0)
    assert low < p < high
    wide = 1.96 * (p * (1 - p) / samples) ** 0.5
    assert p - low == pytest.approx(wide, abs=2 / samples) and high - p == pytest.approx(wide, abs=2 / samples)


@settings(deadline=None, max_examples=100)
@given(st.floats(0, 1), st.floats(1, 1e6))
def test_an_interval_of_a_share_is_around_it(share: float, samples: float) -> None:
    low, high = order.share_interval(share, samples)
    assert 0 <= low <= share + 1e-9 and share - 1e-9 <= high <= 1
