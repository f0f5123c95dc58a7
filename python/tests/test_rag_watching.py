"""`scot rag index --watch`: what changes in a folder changes in its index, whatever happens to files meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from queue import Queue
from types import SimpleNamespace
from typing import Any

import pytest

from bench.words import Words
from scotfree.rag import Index, RagError
from scotfree.rag.choosing import Wanted
from scotfree.rag.commands import watching
from scotfree.rag.commands.reading import Reader

PATIENCE_S = 30


class Watched:
    """A watch on a thread, and what it tells."""

    def __init__(self, index: Path, roots: list[Path], wanted: Wanted, embedder: Words) -> None:
        self.told: Queue[str] = Queue()
        self.stop = threading.Event()
        self.failed: list[BaseException] = []
        self._args = (index, roots, wanted, embedder)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        folder, roots, wanted, embedder = self._args
        try:
            with Index(folder, embedder) as index:

                def read_all(there: list[Path]) -> None:
                    reader = Reader(there, index.folder, wanted)
                    index.update(reader.documents(reader.files()))
                    index.remove(
                        [
                            name
                            for name in index.documents()
                            if reader.is_below(Path(name)) and reader.is_gone(Path(name))
                        ]
                    )

                watching.watch(index, roots, wanted, read_all, self.told.put, self.stop)
        except BaseException as error:
            self.failed.append(error)
            self.told.put(str(error))

    def until(self, said: str) -> str:
        """Waits until it tells something with these words."""
        while True:
            line = self.told.get(timeout=PATIENCE_S)
            if said in line:
                return line

    def end(self) -> None:
        self.stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.txt").write_text("a violin has strings")
    return docs


@pytest.fixture
def embedder(monkeypatch: pytest.MonkeyPatch) -> Words:
    monkeypatch.setattr(watching, "_DEBOUNCE_MS", 50)
    monkeypatch.setattr(watching, "_IDLE_MS", 50)
    return Words()


Starts = Callable[..., Watched]


@pytest.fixture
def start(folder: Path, tmp_path: Path, embedder: Words) -> Iterator[Starts]:
    running: list[Watched] = []

    def begun(roots: list[Path] | None = None, wanted: Wanted | None = None) -> Watched:
        running.append(Watched(tmp_path / "index", roots or [folder], wanted or Wanted(), embedder))
        running[-1].until("watching")
        return running[-1]

    yield begun
    for each in running:
        each.end()


def names(tmp_path: Path) -> list[str]:
    with Index(tmp_path / "index", Words()) as index:
        return [str(Path(name).relative_to(tmp_path)) for name in index.documents()]


def test_what_changes_is_taken_in(folder: Path, tmp_path: Path, embedder: Words, start: Starts) -> None:
    watch = start()
    assert names(tmp_path) == ["docs/a.txt"]
    (folder / "b.txt").write_text("drums are struck")
    assert watch.until("b.txt") == f"{folder}/b.txt: added, 1 passage embedded"
    (folder / "b.txt").write_text("drums are played")
    assert watch.until("b.txt") == f"{folder}/b.txt: changed, 1 passage embedded"
    (folder / "b.txt").rename(folder / "c.txt")
    assert watch.until("c.txt") == f"{folder}/c.txt: moved, 0 passages embedded"
    (folder / "c.txt").write_bytes(b"\0")
    assert watch.until("c.txt") == f"{folder}/c.txt: forgotten"
    (folder / "a.txt").unlink()
    assert watch.until("a.txt") == f"{folder}/a.txt: forgotten"
    assert names(tmp_path) == [] and not watch.failed


def test_folders_come_move_and_go_with_all_that_is_below(folder: Path, tmp_path: Path, start: Starts) -> None:
    (tmp_path / "new/deep").mkdir(parents=True)
    for at in range(3):
        (tmp_path / f"new/deep/{at}.txt").write_text(f"text {at}")
    watch = start()
    (tmp_path / "new").rename(folder / "come")
    watch.until("2.txt: added")
    assert len(names(tmp_path)) == 4
    (folder / "come").rename(folder / "moved")
    watch.until("2.txt: moved, 0 passages")
    assert names(tmp_path)[1] == "docs/moved/deep/0.txt" and len(names(tmp_path)) == 4
    (folder / "moved").rename(tmp_path / "gone")
    watch.until("2.txt: forgotten")
    assert names(tmp_path) == ["docs/a.txt"]


def test_many_at_once_are_told_as_one(folder: Path, start: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_TOLD_MAX", 2)
    (folder.parent / "new").mkdir()
    for at in range(3):
        (folder.parent / f"new/{at}.txt").write_text(f"text {at}")
    watch = start()
    (folder.parent / "new").rename(folder / "new")
    assert watch.until("3 files") == "3 files: 3 added, 0 changed, 0 renamed; 3 passages embedded"


def test_what_is_not_chosen_and_the_index_itself_are_not_taken_in(
    folder: Path, tmp_path: Path, embedder: Words, start: Starts
) -> None:
    watch = start([tmp_path], Wanted(exclude=["drafts/"]))
    (folder / "drafts").mkdir()
    for name in ("drafts/no.txt", ".hidden.txt", "yes.txt"):
        (folder / name).write_text("text")
    watch.until("yes.txt: added")
    assert names(tmp_path) == ["docs/a.txt", "docs/yes.txt"]


def test_a_file_in_whose_place_another_is_put_is_watched_on(folder: Path, tmp_path: Path, start: Starts) -> None:
    watch = start([folder / "a.txt"])
    for text in ("once more", "and again"):
        (tmp_path / "b.txt").write_text(text)
        (tmp_path / "b.txt").replace(folder / "a.txt")
        watch.until("a.txt: changed")


def test_what_cannot_be_taken_in_is_tried_again(folder: Path, tmp_path: Path, start: Starts) -> None:
    watch = start()
    with Index(tmp_path / "index", Words()) as other, other._changing():
        (folder / "b.txt").write_text("drums")
        watch.until("another process is changing it, or what calls this; wait for it to end; it is tried again")
    watch.until("b.txt: added")
    assert len(names(tmp_path)) == 2


def test_what_fails_again_and_again_ends_it(
    folder: Path, tmp_path: Path, start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_TRIES_MAX", 2)
    watch = start()

    def fails(*_: object) -> None:
        raise RagError("embed a text: the model is broken", "mend it")

    monkeypatch.setattr(watching, "_take", fails)
    (folder / "c.txt").write_text("cello")
    assert watch.until("broken") == "embed a text: the model is broken; mend it; it is tried again"
    assert watch.until("broken") == "embed a text: the model is broken; mend it"
    assert isinstance(watch.failed[0], RagError)


def test_whoever_else_changes_the_index_is_waited_for(
    folder: Path, tmp_path: Path, start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_TRIES_MAX", 2)
    monkeypatch.setattr("scotfree.rag.passages._PATIENCE_S", 0.05)
    watch = start()
    (folder / "b.txt").write_text("drums")
    watch.until("b.txt: added")
    tried = threading.Semaphore(0)
    take = watching._take

    def counted(*args: Any) -> None:
        tried.release()
        take(*args)

    monkeypatch.setattr(watching, "_take", counted)
    with closing(sqlite3.connect(tmp_path / "index/passages.sqlite", isolation_level=None)) as other:
        other.execute("begin immediate")
        (folder / "c.txt").write_text("cello")
        watch.until("another program has locked the file of its texts; it is tried again")
        # As often as would end it, were it anything else.
        assert all(tried.acquire(timeout=PATIENCE_S) for _ in range(4))
        other.execute("rollback")
    watch.until("c.txt: added")
    assert len(names(tmp_path)) == 3 and not watch.failed


def test_of_a_folder_that_is_gone_nothing_is_forgotten_and_it_is_waited_for(
    folder: Path, tmp_path: Path, embedder: Words, start: Starts
) -> None:
    (tmp_path / "other").mkdir()
    watch = start([folder, tmp_path / "other"])
    folder.rename(tmp_path / "elsewhere")
    assert watch.until("gone") == f"waiting for {folder}: it is gone; nothing of it is forgotten"
    watch.until(f"watching {tmp_path}/other")
    (tmp_path / "other/c.txt").write_text("cello")
    watch.until("c.txt: added")
    # An empty one may be where a disk is put in.
    folder.mkdir()
    (tmp_path / "other/d.txt").write_text("drum")
    watch.until("d.txt: added")
    assert "docs/a.txt" in names(tmp_path)
    folder.rmdir()
    (tmp_path / "elsewhere/b.txt").write_text("bow")
    (tmp_path / "elsewhere").rename(folder)
    watch.until(f"{folder}: it is back")
    watch.until("watching")
    assert names(tmp_path) == ["docs/a.txt", "docs/b.txt", "other/c.txt", "other/d.txt"]
    assert embedder.asked.count("a violin has strings") == 1
    (folder / "b.txt").unlink()
    watch.until("b.txt: forgotten")
    assert not watch.failed


def test_a_folder_in_whose_place_another_is_put_is_read_anew(folder: Path, tmp_path: Path, start: Starts) -> None:
    watch = start()
    (tmp_path / "new").mkdir()
    (tmp_path / "new/n.txt").write_text("new words")
    folder.rename(tmp_path / "old")
    (tmp_path / "new").rename(folder)
    watch.until("watching")
    assert names(tmp_path) == ["docs/n.txt"]
    (folder / "m.txt").write_text("more words")
    watch.until("m.txt: added")


def test_a_folder_that_is_made_again_at_once_is_watched_on(
    folder: Path, tmp_path: Path, start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The file system gives it the number of the one that was removed, and nobody sees that there is none.
    monkeypatch.setattr(watching, "_identity", lambda _: (1,))
    watch = start()
    shutil.rmtree(folder)
    folder.mkdir()
    # An empty one may be where a disk is put in.
    watch.until(f"waiting for {folder}")
    assert names(tmp_path) == ["docs/a.txt"]
    (folder / "n.txt").write_text("new words")
    watch.until(f"watching {folder}")
    assert names(tmp_path) == ["docs/n.txt"]
    (folder / "m.txt").write_text("more words")
    watch.until("m.txt: added")


def test_a_limit_of_the_kernel_is_told(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> Iterator[set[object]]:
        raise OSError("OS file watch limit reached")
        yield

    monkeypatch.setattr(watching, "needed", lambda *_: SimpleNamespace(watch=refused))
    with Index(tmp_path / "index", Words()) as index, pytest.raises(RagError, match="max_user_watches"):
        watching.watch(index, [folder], Wanted(), lambda _: None, lambda _: None)


def test_ctrl_c_ends_it_in_peace(folder: Path, tmp_path: Path) -> None:
    """The command itself, with the real model."""
    command = [
        sys.executable,
        "-m",
        "scotfree.rag",
        "index",
        str(folder),
        "--watch",
        "--index",
        str(tmp_path / "i"),
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ) as running:
        assert running.stderr
        told = []
        for line in running.stderr:
            told.append(line)
            if "watching" in line:
                running.send_signal(signal.SIGINT)
                break
        told += running.stderr.readlines()
        assert running.wait(PATIENCE_S) == 0
    assert "1 file added" in told[0] and told[-1] == "the watch is ended\n" and "Traceback" not in "".join(told)
