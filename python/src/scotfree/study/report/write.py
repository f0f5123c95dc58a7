"""Writes a report: the page, and beside it the Parquet of every aggregate. Whole or not at all.

Invariant: a page that stands there belongs to the Parquet beside it, wherever a run was killed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from scotfree.study.analysis.study import Study
from scotfree.study.figures import all_figures
from scotfree.study.figures.result import Figure
from scotfree.study.report import catalogue, ledger, page
from scotfree.study.report.catalogue import Computed
from scotfree.study.report.overview import Overview, overview
from scotfree.study.store import COMPRESSION, INDEX
from scotfree.study.trouble import StudyError

# How a page begins.
_TITLE = b"<title>The RPC tax of"
_HEAD_BYTES = 4096


def write_report(
    study: Study, output: Path, *, command: str = "", progress: Callable[[Figure], None] = lambda _: None
) -> list[Computed]:
    """Computes all figures and writes them; what was computed."""
    check(output)
    with study.store.at_rest():
        computed = list(catalogue.compute(study, all_figures(), progress))
        about = _about(study, parquet_folder(output), command)
        first = overview(study)
        troubles = ledger.read(study.store)
    put(output, page.render(computed, troubles, about, first), computed, about, first)
    return computed


def check(output: Path) -> None:
    """That a report can be written there and removes nothing but an earlier report; a `StudyError` otherwise."""
    advice = "name another file with -o"
    if output.is_dir() or not output.name:
        raise StudyError(f"write {output}: it is a folder", f"{advice}, such as {output / 'report.html'}")
    if output.exists() and not output.is_file():
        # The page is put in its place by a rename, which would remove the device for everyone.
        raise StudyError(f"write {output}: it is a pipe or a device", advice)
    if output.exists() and not _is_page(output):
        raise StudyError(f"write {output}: it is there, and no report", advice)
    folder = parquet_folder(output)
    if folder == output:
        raise StudyError(
            f"write {output}: its aggregates would have the same name", f"{advice}, such as report.html"
        )
    if folder.exists() and not (folder / INDEX).is_file():
        raise StudyError(f"write {folder}: it holds something else than a report's aggregates", advice)


def _is_page(path: Path) -> bool:
    """Whether nothing is lost if a page comes in its place."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return not head or _TITLE in head


def parquet_folder(output: Path) -> Path:
    """Where the aggregates of a page lie."""
    return output.with_suffix(".parquet")


def _about(study: Study, parquet: Path, command: str) -> page.About:
    return page.About(
        version=metadata.version("scotfree"),
        made=dt.datetime.now(dt.UTC).replace(microsecond=0),
        store=str(study.store.folder),
        parquet=str(parquet),
        engine=study.engine.name,
        command=command,
        inputs=[asdict(input_) for input_ in study.store.manifest.inputs],
    )


def put(
    output: Path,
    html: str,
    computed: Sequence[Computed],
    about: page.About,
    first: Overview | None = None,
) -> None:
    """Puts page and Parquet in their places when both are whole; until then an earlier report stands."""
    output.parent.mkdir(parents=True, exist_ok=True)
    folder = parquet_folder(output)
    half_page, half_folder = (_hidden(path, "half") for path in (output, folder))
    with _alone(output):
        try:
            _remove(half_folder)
            _write_parquet(half_folder, computed, about, first or Overview())
            half_page.write_text(html, encoding="utf-8", errors="backslashreplace")
            _swap(half_page, output, half_folder, folder)
        finally:
            # What a full disk has left takes room that is wanted.
            _remove(half_page)
            _remove(half_folder)


def _swap(half_page: Path, output: Path, half_folder: Path, folder: Path) -> None:
    """Two names cannot change at once: while the Parquet changes there is no page, rather than a wrong one."""
    old = _hidden(folder, "old")
    _remove(old)
    output.unlink(missing_ok=True)
    if folder.exists():
        folder.rename(old)
    half_folder.rename(folder)
    half_page.rename(output)
    _remove(old)


def _hidden(path: Path, suffix: str) -> Path:
    """What lies there for a while: hidden, so that a report in the folder of its data is none of them."""
    return path.with_name(f".{path.name}.{suffix}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Two reports that end at once are put in their places one behind the other.

    By a file of our own: the folder may be locked by whoever made it and waits for the report.
    """
    lock = _hidden(output, "lock")
    with _locked(lock):
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    while True:
        with lock.open("a") as file:
            # Not every file system has locks.
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever had it before has removed its file, and the next one makes another.
            if _lies_at(lock, file.fileno()):
                yield
                return


def _lies_at(path: Path, descriptor: int) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False


def _write_parquet(folder: Path, computed: Sequence[Computed], about: page.About, first: Overview) -> None:
    """A file per table, a figure's as `FIGURE.TABLE.parquet`, and an index of what is in them."""
    folder.mkdir()
    for name, table in first.tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression=COMPRESSION)
    for each in computed:
        for name, table in each.result.tables.items():
            pq.write_table(table, folder / _file(each, name), compression=COMPRESSION)
    (folder / INDEX).write_text(json.dumps(summary(computed, about, first), indent=1), encoding="utf-8")


def _file(each: Computed, name: str) -> str:
    return f"{each.key}.{name}.parquet"


def summary(computed: Sequence[Computed], about: page.About, first: Overview) -> dict[str, Any]:
    """The report for scripts: what stands out; what each figure says, its coverage, comparisons and files."""
    return {
        "version": about.version,
        "made": about.made.isoformat(),
        "store": about.store,
        "engine": about.engine,
        "scope": dict(first.scope),
        "stands_out": [
            {"what": group.title, "said": [asdict(said) for said in group.sentences]} for group in first.groups
        ],
        "next": [step.command for step in first.steps],
        "critical_path": [asdict(path) for path in first.paths],
        "tables": [f"{name}.parquet" for name in first.tables],
        "figures": [
            {
                "figure": each.figure.number,
                "title": each.figure.title,
                "section": each.figure.section,
                "coverage": each.result.coverage.value,
                "missing": each.result.missing,
                "findings": each.result.findings,
                "comparisons": [asdict(comparison) for comparison in each.result.comparisons],
                "notes": each.result.notes,
                "files": [_file(each, name) for name in each.result.tables],
                "seconds": round(each.seconds, 3),
            }
            for each in computed
        ],
    }


def summary_of(study: Study, computed: Sequence[Computed], output: Path) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "report": str(output),
        "parquet": str(parquet_folder(output)),
        **summary(computed, _about(study, parquet_folder(output), ""), overview(study)),
    }
