"""A store that is written while it is read: what was read of two stores is no result."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from planned import paced
from small_store import spans, study_of

from scotfree.study.analysis.study import Study
from scotfree.study.plan.calls import methods
from scotfree.study.report import write
from scotfree.study.report.serve.queries import Queries
from scotfree.study.store import MANIFEST, Manifest, write_manifest
from scotfree.study.trouble import StudyError


def written_anew(store: Path) -> None:
    """As an ingest ends."""
    (store / MANIFEST).unlink()
    write_manifest(store, Manifest(partitions=2))


def under_way(store: Path) -> None:
    """As an ingest begins to end."""
    (store / MANIFEST).unlink()
    shutil.rmtree(store / "span")


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return study_of(tmp_path / "store", spans(total_ns=np.arange(1, 201), start_ns=paced(200)))


@pytest.mark.parametrize("change", [written_anew, under_way])
def test_no_report_is_made_of_two_stores(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    def compute(*_: object) -> list[object]:
        change(study.store.folder)
        study.engine.arrow(study.span.count())
        return []

    monkeypatch.setattr("scotfree.study.report.catalogue.compute", compute)
    with pytest.raises(StudyError, match="it was written to or removed meanwhile"):
        write.write_report(study, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


@pytest.mark.parametrize("change", [written_anew, under_way])
def test_no_plan_and_no_page_is_made_of_two_stores(study: Study, change: Callable[[Path], None]) -> None:
    queries = Queries(study.store)
    assert len(queries.services()) == len(list(methods(study, 1))) == 1
    change(study.store.folder)
    with pytest.raises(StudyError, match="it was written to or removed meanwhile"):
        list(methods(study, 1))
    with pytest.raises(StudyError, match="it was written to or removed meanwhile"):
        queries.services()


def test_errors_of_a_store_at_rest_are_their_own(study: Study) -> None:
    with pytest.raises(KeyError), study.store.at_rest():
        raise KeyError("x")
