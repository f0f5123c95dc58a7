"""A report that is killed while it is written: what stands belongs together, and the next run goes through."""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import multiprocessing
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from killing import is_killed_at

from scotfree.study.figures.result import Coverage, Figure, Result
from scotfree.study.report import page
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.write import check, parquet_folder, put
from scotfree.study.store import INDEX

# What a report is known by.
TITLE = "<title>The RPC tax of 5 calls</title>"


def report(version: str) -> tuple[str, list[Computed], page.About]:
    about = page.About(version, dt.datetime.now(dt.UTC), "store", "parquet", "duckdb")
    result = Result(Coverage.COMPLETE, {name: pa.table({"x": [1]}) for name in ("one", "two")})
    figure = Figure("F1", "title", "1", lambda _: result)
    return f"{TITLE}{version}", [Computed(figure, result, 0.0)], about


def put_report(output: Path, version: str) -> None:
    put(output, *report(version))


def test_wherever_it_is_killed_a_page_belongs_to_its_parquet(tmp_path: Path) -> None:
    seen, step = set(), 0
    while True:
        output = tmp_path / str(step) / "report.html"
        put(output, *report("old"))
        is_killed = is_killed_at(step, partial(put_report, output, "new"))
        index = parquet_folder(output) / INDEX
        of = json.loads(index.read_text())["version"] if index.exists() else None
        if output.exists():
            assert output.read_text() == f"{TITLE}{of}"
        seen.add((output.exists(), of))
        check(output)
        put(output, *report("last"))
        assert output.read_text() == f"{TITLE}last"
        assert sorted(path.name for path in output.parent.iterdir()) == ["report.html", "report.parquet"]
        if not is_killed:
            break
        step += 1
    assert {(True, "old"), (False, "old"), (False, "new"), (True, "new")} <= seen


def test_what_cannot_be_written_leaves_the_earlier_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "report.html"
    put(output, *report("old"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        put(output, *report("new"))
    assert output.read_text() == f"{TITLE}old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.parquet"]


def test_a_folder_that_its_owner_has_locked_takes_a_report(tmp_path: Path) -> None:
    # As the demonstration does, which waits for its report.
    owner = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(owner, fcntl.LOCK_EX)
    writer = multiprocessing.get_context("fork").Process(
        target=put, args=(tmp_path / "report.html", *report("new"))
    )
    writer.start()
    try:
        writer.join(30)
        assert writer.exitcode == 0, "it waits for the lock of another"
    finally:
        writer.kill()
        writer.join()
        os.close(owner)
    assert (tmp_path / "report.html").read_text() == f"{TITLE}new"


def test_reports_that_end_at_once_are_put_one_behind_the_other(tmp_path: Path) -> None:
    output = tmp_path / "report.html"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=put, args=(output, *report(f"v{which}"))) for which in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 6
    of = json.loads((parquet_folder(output) / INDEX).read_text())["version"]
    assert output.read_text() == f"{TITLE}{of}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.parquet"]
