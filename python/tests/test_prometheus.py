"""Prometheus' answers and OpenMetrics text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import FIXTURES, Read, read, read_bytes

from scotfree.study.ingest import json_stream
from scotfree.study.ingest.prometheus import Prometheus

S = 1_700_000_000 * 10**9


def _series(found: Read, name: str) -> list[dict[str, Any]]:
    return [row for row in found.rows if row["series"] == name]


@pytest.mark.parametrize("chunk", [1, 11, 1 << 20])
def test_answers_to_range_queries(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "CHUNK_BYTES", chunk)
    found = read(Prometheus(), FIXTURES / "prometheus.json")
    place = {"series": "rps", "service": "cart", "method": "Get", "cluster": "east", "machine": "m1"}
    assert _series(found, "rps") == [
        {**place, "ts_ns": S + 30_500_000_000, "value": 10.0},
        # It fell: it began again at 0.
        {**place, "ts_ns": S + 40_500_000_000, "value": 0.5},
        # The next answer continues the series.
        {**place, "ts_ns": S + 60_500_000_000, "value": 1.0},
    ]
    assert _series(found, "cpu_util") == [
        {"series": "cpu_util", "cluster": "east-1", "machine": "m1", "ts_ns": S + 123_000_000, "value": 0.25}
    ]
    assert _series(found, "cpu_limit") == [{"series": "cpu_limit", "service": "cart", "ts_ns": S, "value": 2.0}]
    assert found.troubles == {
        "a counter's sample is not later than the one before": 1,
        "a sample's value is no number": 1,
        "a sample has no time": 1,
        "a series has no name (functions take it off)": 1,
    }
    # One sample began the counter.
    assert len(found.rows) + found.ledger.dropped() + 1 == found.records == 10


def test_openmetrics() -> None:
    found = read(Prometheus(), FIXTURES / "openmetrics.txt")
    assert found.rows == [
        {
            "series": "cpu_used",
            "service": 'cart "}\\ x',
            "machine": "m1",
            "ts_ns": S + 10_500_000_000,
            "value": 1.5,
        },
        {"series": "cpi", "ts_ns": S, "value": 1.25},
    ]
    assert found.troubles == {"a sample has no time": 1, "no line of metrics": 1}


def test_a_counter_can_be_named(tmp_path: Path) -> None:
    text = b"requests 10 100\nrequests 30 110\n"
    assert [row["value"] for row in read_bytes(Prometheus(), tmp_path, text).rows] == [10, 30]
    named = Prometheus(frozenset({"requests"}))
    assert [row["value"] for row in read_bytes(named, tmp_path, text).rows] == [2]


_VALUE = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=4), st.lists(st.integers())
)


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_answer_ends_in_rows_and_ledger(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    text = bytearray((FIXTURES / data.draw(st.sampled_from(["prometheus.json", "openmetrics.txt"]))).read_bytes())
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 5))] = str(data.draw(_VALUE)).encode("utf-8", "replace")
    del text[data.draw(st.integers(0, len(text))) :]
    found = read_bytes(Prometheus(), tmp_path_factory.mktemp("p"), bytes(text))
    assert found.records >= len(found.rows) + found.ledger.dropped()
    assert all(math.isfinite(row["value"]) and 0 <= row["ts_ns"] < 2**63 for row in found.rows)
