"""F3 and F8 in words: which methods the sentences are about, ties, and numbers of one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_store import spans, study_of

from scotfree.study.figures import popularity, services
from scotfree.study.figures.result import Coverage


def calls(**methods: tuple[int, int | None]) -> dict[str, Any]:
    """So many calls of each, each so long; None: no client's record says it."""
    names = [name for name, (count, _) in methods.items() for _ in range(count)]
    return {
        "service": [name.lower() for name in names],
        "method": names,
        "total_ns": [methods[name][1] for name in names],
        "server_app_ns": [1_000] * len(names),
    }


def test_equal_shares_have_no_first(tmp_path: Path) -> None:
    """Twelve methods of twenty calls each: six are half, and none has most."""
    study = study_of(tmp_path, spans(**calls(**{f"M{at:02}": (20, 5_000) for at in range(12)})))
    assert popularity.compute(study).findings == ["6 methods of 12 make up half of all calls."]
    assert not [said for said in services.compute_shares(study).findings if "most" in said]


def test_one_with_more_is_named(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(**calls(Get=(30, 5_000), Put=(20, 5_000))))
    assert popularity.compute(study).findings == [
        "get Get alone is 60 % of all calls; 1 method of 2 makes up half."
    ]
    assert services.compute_shares(study).findings[0] == "get has most calls: 60 %."


def test_slow_methods_are_those_that_are_ranked(tmp_path: Path) -> None:
    """Slow has too few calls for a place, of Entry no client says how long it took."""
    study = study_of(
        tmp_path,
        spans(**calls(Get=(150, 1_000_000), Put=(100, 2_000_000), Slow=(20, 90_000_000), Entry=(200, None))),
    )
    result = popularity.compute(study)
    assert result.findings[-1] == (
        "Of the 2 methods with 100 calls that their clients timed the slowest, put Put, has 21 % of all calls and "
        "9.3 % of the time of all; put Put takes most of them, 9.3 %."
    )
    assert result.coverage is Coverage.PARTIAL
    assert any("2 of 3 methods have it" in one for one in result.missing)


@pytest.mark.parametrize("others", [0, 300])
def test_a_single_ranked_method_is_no_ranking(tmp_path: Path, others: int) -> None:
    """It is partial as soon as most calls are of methods without a place."""
    rare = {f"Rare{at}": (10, 1_000_000) for at in range(others // 10)}
    study = study_of(tmp_path, spans(**calls(Get=(100, 1_000_000), **rare)))
    result = popularity.compute(study)
    share = "100 %" if not others else "25 %"
    assert result.findings[-1] == (
        f"Only get Get is a method with 100 calls that their clients timed: {share} of all calls and {share} of "
        "the time of all."
    )
    assert result.coverage is (Coverage.PARTIAL if others else Coverage.COMPLETE)


def test_of_equally_costly_methods_none_takes_most(tmp_path: Path) -> None:
    study = study_of(tmp_path, spans(**calls(Get=(100, 2_000_000), Put=(100, 2_000_000))))
    assert not np.any(["takes most" in said for said in popularity.compute(study).findings])
