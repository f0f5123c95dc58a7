"""An ingest as a whole: repeated, interrupted, killed, in the way of others."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from killing import is_killed_at
from sides import SMALL, SidesForm, by_id, client, content, merged, options, reasons, server, write

from scotfree.study import schema
from scotfree.study.ingest import finish, lock, partitions, scratch
from scotfree.study.ingest.limits import Limits
from scotfree.study.ingest.options import Options
from scotfree.study.ingest.reader import Batch, Source
from scotfree.study.ingest.run import ingest
from scotfree.study.store import MANIFEST, Store
from scotfree.study.trouble import StudyError

ROWS = [row for trace in range(1, 17) for row in (client(1, trace=trace), server(2, 1, trace=trace))]


class Counting(SidesForm):
    """Knows which files it read."""

    def __init__(self, stop_at: str | None = None, error: BaseException | None = None) -> None:
        self.read_files: list[str] = []
        self._stop_at = stop_at
        self._error = error

    def read(self, source: Source) -> Iterator[Batch]:
        self.read_files.append(source.path.name)
        for batch in super().read(source):
            yield batch
            if self._error is not None and source.path.name == self._stop_at:
                raise self._error


def _options(form: SidesForm) -> Options:
    return Options(limits=SMALL, readers=(form,), now_ns=options().now_ns)


def _data(folder: Path) -> list[Path]:
    return [write(folder / f"{part}.sides", ROWS[part::3]) for part in range(3)]


def _fresh(folder: Path, data: list[Path]) -> dict[str, Any]:
    return content(ingest(data, folder / "fresh", options()))


def test_the_same_inputs_again_are_not_read(tmp_path: Path) -> None:
    form = Counting()
    data = _data(tmp_path)
    first = content(ingest(data, tmp_path / "store", _options(form)))
    assert form.read_files == ["0.sides", "1.sides", "2.sides"]
    assert content(ingest(data, tmp_path / "store", _options(form))) == first
    assert len(form.read_files) == 3
    assert not (tmp_path / "store" / "scratch").exists()


def test_a_store_of_an_older_version_is_made_anew_of_the_same_data_and_of_no_other(tmp_path: Path) -> None:
    data, store = _data(tmp_path), tmp_path / "store"
    fresh = content(ingest(data, store, options()))
    manifest = store / MANIFEST
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(StudyError, match="of version 1"):
        Store.open(store)
    other = write(tmp_path / "other.sides", ROWS[:3])
    with pytest.raises(StudyError):
        ingest([other], store, options())
    assert content(ingest(data, store, options())) == fresh
    assert Store.open(store).manifest.version == 2


def test_changed_inputs_are_read_anew(tmp_path: Path) -> None:
    data = _data(tmp_path)
    ingest(data, tmp_path / "store", options())
    write(data[1], [client(1, trace=99)])
    again = content(ingest(data, tmp_path / "store", options()))
    assert again == _fresh(tmp_path, data)
    assert any(row["trace_id"][-1] == 99 for name, rows in again.items() if "=" in name for row in rows)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "the disk is gone")])
def test_what_was_read_before_an_interrupt_is_not_read_again(tmp_path: Path, error: BaseException) -> None:
    data = _data(tmp_path)
    broken = Counting("1.sides", error)
    with pytest.raises((KeyboardInterrupt, StudyError)):
        ingest(data, tmp_path / "store", _options(broken))
    assert broken.read_files == ["0.sides", "1.sides"]
    with pytest.raises(StudyError, match="no input was read into it"):
        Store.open(tmp_path / "store")
    form = Counting()
    found = content(ingest(data, tmp_path / "store", _options(form)))
    assert form.read_files == ["1.sides", "2.sides"]
    assert found == _fresh(tmp_path, data)


def test_an_input_that_changed_after_an_interrupt_is_read_anew(tmp_path: Path) -> None:
    data = _data(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ingest(data, tmp_path / "store", _options(Counting("2.sides", KeyboardInterrupt())))
    write(data[0], [client(7, trace=7)])
    form = Counting()
    found = content(ingest(data, tmp_path / "store", _options(form)))
    assert form.read_files == ["0.sides", "2.sides"]
    assert found == _fresh(tmp_path, data)


# A function of a step, and how often it works before the process is killed in its place.
STEPS = [
    (scratch, "_write_arrow", 3),
    (scratch, "write_json", 1),
    (partitions, "_copy", 4),
    (partitions, "write_json", 1),
    (finish, "_trace_ids", 1),
]

KILLED = """
import os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from sides import options
from scotfree.study.ingest import finish, partitions, scratch
from scotfree.study.ingest.run import ingest
module = {module}
right, left = getattr(module, {name!r}), [{after}]
def wrong(*arguments):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), 9)
    return right(*arguments)
setattr(module, {name!r}, wrong)
ingest([Path(path) for path in {data!r}], Path({store!r}), options())
"""


@pytest.mark.parametrize(("module", "name", "after"), STEPS, ids=[f"{s[1]}-{s[2]}" for s in STEPS])
def test_killed_at_any_step_the_same_command_gives_the_same_store(
    tmp_path: Path, module: Any, name: str, after: int
) -> None:
    data = _data(tmp_path)
    store = tmp_path / "store"
    program = KILLED.format(
        tests=str(Path(__file__).parent),
        module=module.__name__.split(".")[-1],
        name=name,
        after=after,
        data=[str(path) for path in data],
        store=str(store),
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=100)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    assert not (store / "store.json").exists()
    assert content(ingest(data, store, options())) == _fresh(tmp_path, data)


# Before the removal of the scratch files, when it begins, and in it.
@pytest.mark.parametrize("step", [1, 2, 5])
def test_killed_in_its_end_the_next_run_leaves_a_store_and_nothing_else(tmp_path: Path, step: int) -> None:
    data, store = _data(tmp_path), tmp_path / "store"
    assert is_killed_at(step, partial(ingest, data, store, _options(Counting())), since=MANIFEST)
    assert content(ingest(data, store, _options(Counting()))) == _fresh(tmp_path, data)
    names = {path.name for path in store.iterdir()}
    assert names == {"lock", "methods.parquet", "span", "store.json", "trouble.parquet"}


def test_half_written_files_do_not_count(tmp_path: Path) -> None:
    data = _data(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        ingest(data, tmp_path / "store", _options(Counting("2.sides", KeyboardInterrupt())))
    for name in ("segment-000099", "notes-000099", "plan"):
        (tmp_path / "store" / "scratch" / f"{name}.half").write_bytes(b"nonsense")
    assert content(ingest(data, tmp_path / "store", options())) == _fresh(tmp_path, data)


def test_a_store_that_another_process_writes_is_refused(tmp_path: Path) -> None:
    data = _data(tmp_path)
    with lock.locked(tmp_path / "store"), pytest.raises(StudyError, match=f"process {os.getpid()} is writing it"):
        ingest(data, tmp_path / "store", options())


def test_a_folder_with_other_things_is_no_store(tmp_path: Path) -> None:
    data = _data(tmp_path)
    (tmp_path / "mine" / "span").mkdir(parents=True)
    (tmp_path / "mine" / "span" / "novel.txt").write_text("my work of years")
    with pytest.raises(StudyError, match="holds other things"):
        ingest(data, tmp_path / "mine", options())
    assert (tmp_path / "mine" / "span" / "novel.txt").exists()


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    data = _data(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(scratch, "_write_arrow", full)
        with pytest.raises(StudyError, match="the disk is full; make room"):
            ingest(data, tmp_path / "store", options())
    assert content(ingest(data, tmp_path / "store", options())) == _fresh(tmp_path, data)


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    data = _data(tmp_path)
    form = Counting("1.sides", PermissionError(errno.EACCES, "Permission denied"))
    with pytest.raises(StudyError, match=r"read .*1\.sides: Permission denied; make it readable"):
        ingest(data, tmp_path / "store", _options(form))
    again = Counting()
    ingest([data[0], data[2]], tmp_path / "store", _options(again))
    assert again.read_files == ["2.sides"]


def test_files_of_no_known_form_are_named_but_do_not_end_it(tmp_path: Path) -> None:
    _data(tmp_path)
    (tmp_path / "notes.txt").write_text("to do")
    store = ingest([tmp_path], tmp_path / "store", options())
    assert len(store.manifest.inputs) == 3
    assert reasons(store, kept=False) == {"no known form: not read": 1}
    with pytest.raises(StudyError, match="no known form"):
        ingest([tmp_path / "notes.txt"], tmp_path / "other", options())


def test_an_empty_file_is_named_as_one_but_does_not_end_it(tmp_path: Path) -> None:
    _data(tmp_path)
    (tmp_path / "spans.json").touch()
    store = ingest([tmp_path], tmp_path / "store", options())
    assert reasons(store, kept=False) == {"empty: not read; see whether what should have written it did": 1}
    with pytest.raises(StudyError, match=r"read .*spans\.json: it is empty; "):
        ingest([tmp_path / "spans.json"], tmp_path / "other", options())


def test_what_is_not_there_or_empty_is_said(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no such file"):
        ingest([tmp_path / "nothing"], tmp_path / "store", options())
    (tmp_path / "empty").mkdir()
    with pytest.raises(StudyError, match=f"{tmp_path}/empty: there is no file of a known form"):
        ingest([tmp_path / "empty"], tmp_path / "store", options())
    assert not (tmp_path / "store").exists()


def test_what_was_read_from_elsewhere_is_not_thrown_away(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        _data(tmp_path / name)
    first = content(ingest([tmp_path / "a"], tmp_path / "store", options()))
    with pytest.raises(StudyError, match=r"holds what was read from .*say --replace"):
        ingest([tmp_path / "b"], tmp_path / "store", options())
    assert content(Store.open(tmp_path / "store")) == first
    # Files of a folder may come and go.
    next((tmp_path / "a").iterdir()).unlink()
    assert content(ingest([tmp_path / "a"], tmp_path / "store", options())) != first
    ingest([tmp_path / "b"], tmp_path / "store", replace(options(), replaces=True))
    assert all(f"{tmp_path}/b" in one.path for one in Store.open(tmp_path / "store").manifest.inputs)


def test_a_store_beside_its_data_is_no_data(tmp_path: Path) -> None:
    _data(tmp_path)
    first = content(ingest([tmp_path], tmp_path / "a.store", options()))
    assert content(ingest([tmp_path], tmp_path / "b.store", options())) == first


def test_more_methods_than_can_be_numbered_become_one(tmp_path: Path) -> None:
    rows = [client(10 * n + k, name=f"M{n}", peer_service="s") for n in range(1, 6) for k in range(n)]
    store = ingest([write(tmp_path / "a.sides", rows)], tmp_path / "store", replace(options(), methods_max=3))
    named = [(row["service"], row["method"]) for row in store.read("methods").to_pylist()]
    assert named == [("s", "M4"), ("s", "M5"), ("other", "other")]
    calls = {span: (call["method"], call["method_id"]) for span, call in by_id(store).items()}
    assert {calls[span] for span in (10, 20, 21, 30)} == {("other", 2)}
    assert (calls[40], calls[50]) == (("M4", 0), ("M5", 1))
    assert reasons(store)["one of more than 3 methods: among others"] == 6


def test_bounds_of_memory_change_nothing(tmp_path: Path) -> None:
    large = merged(tmp_path / "large", ROWS, limits=Limits(memory="1GB", threads=2))
    small = merged(tmp_path / "small", ROWS, limits=Limits("100MB", 1, segment_rows=1, partition_rows=4))
    assert small.manifest.partitions > large.manifest.partitions == 1
    assert by_calls(small) == by_calls(large)


def by_calls(store: Store) -> list[Any]:
    rows = [row for part in store.iter_partitions(schema.SPAN.names) for row in part.to_pylist()]
    return sorted(rows, key=lambda row: (row["trace_id"], row["span_id"]))


def test_all_rows_of_the_store_have_the_columns_of_the_contract(tmp_path: Path) -> None:
    store = merged(tmp_path, ROWS)
    for part in store.iter_partitions(schema.SPAN.names):
        assert part.schema.remove_metadata() == schema.SPAN
