"""Faults put into the figures on purpose: the oracles of the other tests must see each of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import test_figures_components
import test_figures_tax
import test_figures_what_if
from small_store import spans, study_of

from scotfree.study.analysis import nearby, place, shares, what_if
from scotfree.study.figures import tax

Plant = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[Path], None]


def _means_for_sums(patch: pytest.MonkeyPatch) -> None:
    """The mean of ratios is shown as the ratio of sums."""
    honest = tax.share

    def swapped(*parts: Any, **how: Any) -> tax.Share:
        found = honest(*parts, **how)
        return tax.Share(found.mean, found.mean)

    patch.setattr(tax, "share", swapped)


def _one_more(table: pa.Table) -> pa.Table:
    """Thresholds a nanosecond higher: of whole nanoseconds, `>=` becomes `>`."""
    raised = pa.array(np.array(table["threshold_ns"]) + 1)
    return table.set_column(table.column_names.index("threshold_ns"), "threshold_ns", raised)


def _above_for_from(patch: pytest.MonkeyPatch) -> None:
    """F10's tail begins above the P95, not at it."""
    honest = shares.tails
    patch.setattr(shares, "tails", lambda study: _one_more(honest(study)))


def _from_for_above(patch: pytest.MonkeyPatch) -> None:
    """F15's tail begins at the P95, not above it."""
    honest = what_if.dense

    def lowered(found: pa.Table, column: str, methods: int) -> Any:
        return honest(found, column, methods) - (column == "bound_ns")

    patch.setattr(what_if, "dense", lowered)


def _tails_confused(patch: pytest.MonkeyPatch) -> None:
    """The tail of all calls is taken for those of the methods, and the other way round."""
    (all_, tail, overall) = tax._SCOPES
    patch.setattr(tax, "_SCOPES", (all_, (tail[0], overall[1], tail[2]), (overall[0], tail[1], overall[2])))


def _any_cluster(patch: pytest.MonkeyPatch) -> None:
    """Calls between clusters are taken for calls within one."""
    patch.setattr(place, "within_cluster", lambda calls: calls)


def _median_for_tail(patch: pytest.MonkeyPatch) -> None:
    """The median call is shown as the P95 call."""
    patch.setattr(nearby, "column", lambda _: "p50")


def _check_shares(scope: str) -> Check:
    return lambda folder: test_figures_tax.test_shares_are_those_of_the_oracle(folder, scope)


def _check_clusters(folder: Path) -> None:
    study = study_of(folder, spans(**test_figures_components.columns()))
    test_figures_components.test_clusters_have_the_components_around_their_own_tail(study)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (_means_for_sums, _check_shares("all")),
        (_above_for_from, test_figures_tax.test_a_call_at_the_threshold_is_of_the_tail),
        (_from_for_above, test_figures_what_if.test_the_matrix_is_the_oracles),
        (_tails_confused, _check_shares("tail")),
        (_tails_confused, _check_shares("global_tail")),
        (_any_cluster, _check_clusters),
        (_median_for_tail, _check_clusters),
    ],
)
def test_the_plant_is_seen(plant: Plant, check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        check(tmp_path)
